//! What the ceilings of CONTRIBUTING.md count.

use std::collections::{BTreeMap, BTreeSet};

use pathfinding::directed::strongly_connected_components::strongly_connected_components;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{Fields, FnArg, ImplItem, Item, ItemStruct, Pat, ReceiverKind, Signature, Type};

use super::modules::{imports, is_re_export};
use super::{ModuleId, SourceCrate, Target, is_test};

/// A type with more methods does the work of several.
pub(super) const MANY_METHODS: usize = 60;
/// A type with more fields has parts that want names.
pub(super) const MANY_FIELDS: usize = 20;

/// Beginnings of names that ask a question.
const QUESTIONS: &[&str] = &["can_", "has_", "is_", "may_", "needs_", "takes_", "wants_"];

/// Where congestion control of a hop lives, under `crates/link/src/hop`.
const RATE_CONTROL: &[&str] = &[
    "congestion",
    "feedback",
    "pacing",
    "sender/control",
    "sender/thin",
    "sender/train",
];

/// The configurations from which a node's machine is made.
const CONFIGURATIONS: &[&str] = &["HostConfig", "NdnRouterConfig", "RouterConfig"];

/// One number that may only fall.
#[derive(Debug, PartialEq, Eq)]
pub struct Count {
    /// Its row in the table of CONTRIBUTING.md.
    pub row: &'static str,
    /// How many or how much there is.
    pub found: usize,
    /// What it consists of, worst first.
    pub examples: Vec<String>,
}

/// What was found in all crates.
#[derive(Default)]
pub struct Census {
    methods: BTreeMap<String, usize>,
    fields: BTreeMap<String, usize>,
    homes: BTreeMap<String, BTreeSet<String>>,
    circles: Vec<Vec<String>>,
    tuples: Vec<String>,
    acting: Vec<String>,
    constants: BTreeMap<String, usize>,
    composers: BTreeSet<String>,
    functions: Vec<(usize, String)>,
    files: Vec<(usize, String)>,
    lines: BTreeMap<String, usize>,
}

impl Census {
    /// Counts in all `crates`.
    #[must_use]
    pub fn take(crates: &[SourceCrate]) -> Self {
        let mut census = Self::default();
        for source in crates {
            census.take_crate(source);
        }
        census
    }

    /// The numbers, in the order of the table.
    #[must_use]
    pub fn counts(&self) -> Vec<Count> {
        let repeated: Vec<_> = (self.homes.iter())
            .filter(|(_, homes)| homes.len() > 1)
            .map(|(name, homes)| (homes.len(), name.clone()))
            .collect();
        let circles = || {
            self.circles
                .iter()
                .map(|files| (files.len(), files.join(" ")))
        };
        vec![
            Count::largest("methods of the largest type", by_size(&self.methods)),
            Count::above(
                "types with more than 60 methods",
                MANY_METHODS,
                by_size(&self.methods),
            ),
            Count::largest("fields of the largest struct", by_size(&self.fields)),
            Count::above(
                "structs with more than 20 fields",
                MANY_FIELDS,
                by_size(&self.fields),
            ),
            Count::above("circles of files", 0, circles()),
            Count::largest("files in the largest circle", circles()),
            Count::each("functions with a tuple parameter", &self.tuples),
            Count::each("predicates that act", &self.acting),
            Count::sum(
                "constants of a hop's congestion control",
                by_size(&self.constants),
            ),
            Count::above("type names used more than once", 1, repeated),
            Count::each("files that compose a node", &self.composers),
            Count::largest(
                "lines of the longest function",
                self.functions.iter().cloned(),
            ),
            Count::largest("lines of the longest file", self.files.iter().cloned()),
            Count::sum("lines of crates/*/src without tests", by_size(&self.lines)),
        ]
    }

    fn take_crate(&mut self, source: &SourceCrate) {
        let mut uses: Vec<BTreeSet<usize>> = vec![BTreeSet::new(); source.files.len()];
        for file in &source.files {
            self.files.push((file.lines, file.path.clone()));
            *self.lines.entry(source.name.clone()).or_default() += file.lines - file.test_lines;
        }
        for (id, module) in source.modules.iter().enumerate() {
            let mut reader = Reader {
                census: self,
                source,
                module: ModuleId(id),
                used: BTreeSet::new(),
            };
            for item in &module.items {
                reader.visit_item(item);
            }
            uses[module.file].extend(reader.used);
        }
        let files: Vec<usize> = (0..source.files.len()).collect();
        for circle in strongly_connected_components(&files, |file| uses[*file].clone()) {
            if circle.len() > 1 {
                let mut paths: Vec<_> = circle
                    .iter()
                    .map(|file| source.files[*file].path.clone())
                    .collect();
                paths.sort();
                self.circles.push(paths);
            }
        }
    }
}

impl Count {
    fn new(row: &'static str, found: usize, mut examples: Vec<(usize, String)>) -> Self {
        examples.sort_by(|one, other| other.0.cmp(&one.0).then_with(|| one.1.cmp(&other.1)));
        let examples = (examples.into_iter())
            .map(|(size, what)| format!("{size} {what}"))
            .collect();
        Self {
            row,
            found,
            examples,
        }
    }

    fn largest(row: &'static str, sizes: impl IntoIterator<Item = (usize, String)>) -> Self {
        let sizes: Vec<_> = sizes.into_iter().collect();
        Self::new(
            row,
            sizes.iter().map(|(size, _)| *size).max().unwrap_or(0),
            sizes,
        )
    }

    fn above(
        row: &'static str,
        most: usize,
        sizes: impl IntoIterator<Item = (usize, String)>,
    ) -> Self {
        let sizes: Vec<_> = sizes.into_iter().filter(|(size, _)| *size > most).collect();
        Self::new(row, sizes.len(), sizes)
    }

    fn sum(row: &'static str, sizes: impl IntoIterator<Item = (usize, String)>) -> Self {
        let sizes: Vec<_> = sizes.into_iter().collect();
        Self::new(row, sizes.iter().map(|(size, _)| size).sum(), sizes)
    }

    fn each<'a>(row: &'static str, all: impl IntoIterator<Item = &'a String>) -> Self {
        let examples: Vec<String> = all.into_iter().cloned().collect();
        Self {
            row,
            found: examples.len(),
            examples,
        }
    }
}

fn by_size(sizes: &BTreeMap<String, usize>) -> impl Iterator<Item = (usize, String)> {
    sizes.iter().map(|(name, size)| (*size, name.clone()))
}

/// Reads the items of one module.
struct Reader<'a> {
    census: &'a mut Census,
    source: &'a SourceCrate,
    module: ModuleId,
    /// Files whose items the module names.
    used: BTreeSet<usize>,
}

impl Reader<'_> {
    fn file(&self, module: ModuleId) -> &str {
        &self.source.files[self.source.modules[module.0].file].path
    }

    fn here(&self, name: &impl ToString) -> String {
        format!("{} {}", self.file(self.module), name.to_string())
    }

    fn follow(&mut self, path: &[String]) {
        if let Some(Target::Item(module, _)) = self.source.resolve(self.module, path) {
            let file = self.source.modules[module.0].file;
            if !self.source.is_part_of(module, self.module) {
                self.used.insert(file);
            }
        }
    }

    /// Adds a type that is declared here.
    fn declare(&mut self, name: &impl ToString) {
        let home = self.here(name);
        self.census
            .homes
            .entry(name.to_string())
            .or_default()
            .insert(home);
    }

    fn function(&mut self, signature: &Signature, body: &impl Spanned) {
        let end = body.span().end().line;
        let lines = (signature.span().start().line..=end).count();
        let name = self.here(&signature.ident);
        self.census.functions.push((lines, name.clone()));
        let mut by_mutable_reference = false;
        let mut tuple = false;
        for input in &signature.inputs {
            match input {
                FnArg::Receiver(receiver) => {
                    by_mutable_reference =
                        matches!(&receiver.kind, ReceiverKind::Reference(_, _, Some(_)));
                }
                FnArg::Typed(typed) => {
                    tuple |= is_tuple(&typed.ty) || matches!(*typed.pat, Pat::Tuple(_));
                }
            }
        }
        if tuple {
            self.census.tuples.push(name.clone());
        }
        let word = signature.ident.to_string();
        if by_mutable_reference && QUESTIONS.iter().any(|question| word.starts_with(question)) {
            self.census.acting.push(name);
        }
    }

    fn is_rate_control(&self) -> bool {
        self.file(self.module)
            .strip_prefix("crates/link/src/hop/")
            .is_some_and(|path| RATE_CONTROL.iter().any(|part| path.starts_with(part)))
    }
}

/// True for `(A, B)` and for references to it.
fn is_tuple(of: &Type) -> bool {
    match of {
        Type::Tuple(tuple) => !tuple.elems.is_empty(),
        Type::Reference(reference) => is_tuple(&reference.elem),
        _ => false,
    }
}

/// True for what only counts: it has no behaviour to divide.
fn is_counters(of: &ItemStruct) -> bool {
    let name = of.ident.to_string();
    name.ends_with("Counters") || name.ends_with("Stats")
}

fn words(path: &syn::Path) -> Vec<String> {
    path.segments
        .iter()
        .map(|segment| segment.ident.to_string())
        .collect()
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item(&mut self, item: &'ast Item) {
        match item {
            // Modules are read by themselves.
            Item::Mod(_) => return,
            Item::Use(used) if !is_re_export(&used.vis) => {
                for import in imports(&used.tree).iter().filter(|it| it.name.is_some()) {
                    self.follow(&import.path);
                }
            }
            Item::Struct(of) => {
                self.declare(&of.ident);
                if let Fields::Named(fields) = &of.fields
                    && !is_counters(of)
                {
                    let name = self.here(&of.ident);
                    self.census.fields.insert(name, fields.named.len());
                }
            }
            Item::Enum(of) => self.declare(&of.ident),
            Item::Trait(of) => self.declare(&of.ident),
            Item::Type(of) => self.declare(&of.ident),
            Item::Const(of) if self.is_rate_control() && of.ident != "_" => {
                let file = self.file(self.module).to_owned();
                *self.census.constants.entry(file).or_default() += 1;
            }
            _ => {}
        }
        visit::visit_item(self, item);
    }

    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.function(&function.sig, &function.block);
        visit::visit_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        self.function(&function.sig, &function.default);
        visit::visit_trait_item_fn(self, function);
    }

    fn visit_item_impl(&mut self, block: &'ast syn::ItemImpl) {
        let methods = (block.items.iter())
            .filter(|item| matches!(item, ImplItem::Fn(function) if !is_test(&function.attrs)))
            .count();
        if block.trait_.is_none()
            && let Type::Path(path) = &*block.self_ty
        {
            let target = self.source.resolve(self.module, &words(&path.path));
            let name = match target {
                Some(Target::Item(module, name)) => format!("{} {name}", self.file(module)),
                _ => self.here(&words(&path.path).join("::")),
            };
            *self.census.methods.entry(name).or_default() += methods;
        }
        visit::visit_item_impl(self, block);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        if !is_test(&function.attrs) {
            self.function(&function.sig, &function.block);
            visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_expr_struct(&mut self, made: &'ast syn::ExprStruct) {
        if words(&made.path)
            .last()
            .is_some_and(|name| CONFIGURATIONS.contains(&name.as_str()))
            // The type's own crate has its defaults.
            && self.source.resolve(self.module, &words(&made.path)).is_none()
        {
            let file = self.file(self.module).to_owned();
            self.census.composers.insert(file);
        }
        visit::visit_expr_struct(self, made);
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        self.follow(&words(path));
        visit::visit_path(self, path);
    }
}
