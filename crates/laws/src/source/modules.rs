//! Modules of a crate, and where a path in one of them leads.

use std::collections::{BTreeMap, BTreeSet};

use syn::{Item, UseTree, Visibility};

use super::SourceCrate;

/// A place in [`SourceCrate::modules`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ModuleId(pub usize);

/// A module: a file or a part of one.
pub struct Module {
    /// Its own name; `crate` for a root.
    pub name: String,
    /// The file that it is in, a place in [`SourceCrate::files`].
    pub file: usize,
    /// The module that declares it.
    pub parent: Option<ModuleId>,
    /// The modules that it declares.
    pub children: Vec<(String, ModuleId)>,
    /// What else it declares, without tests.
    pub items: Vec<Item>,
    /// Names that it declares itself.
    pub declared: BTreeSet<String>,
    /// Names that it brings in with `use`, and their paths.
    pub imports: BTreeMap<String, Vec<String>>,
    /// Paths that it brings in with `use path::*`.
    pub globs: Vec<Vec<String>>,
}

/// Where a path leads inside its crate.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    /// A module.
    Module(ModuleId),
    /// Something that the module declares, by its name.
    Item(ModuleId, String),
}

/// One `use`, without braces.
pub(super) struct Import {
    pub(super) path: Vec<String>,
    /// The name that it gets; `None` for `*`.
    pub(super) name: Option<String>,
}

/// Chains of re-exports longer than this are circles.
const LONGEST_CHAIN: usize = 16;

impl Module {
    pub(super) fn new(
        name: String,
        file: usize,
        parent: Option<ModuleId>,
        items: Vec<Item>,
    ) -> Self {
        let mut module = Self {
            name,
            file,
            parent,
            children: Vec::new(),
            declared: items.iter().filter_map(name_of).collect(),
            imports: BTreeMap::new(),
            globs: Vec::new(),
            items,
        };
        for item in &module.items {
            if let Item::Use(used) = item {
                for import in imports(&used.tree) {
                    match import.name {
                        Some(name) => drop(module.imports.insert(name, import.path)),
                        None => module.globs.push(import.path),
                    }
                }
            }
        }
        module
    }
}

/// The name of what an item declares: types, functions, constants and traits.
fn name_of(item: &Item) -> Option<String> {
    Some(match item {
        Item::Const(it) => it.ident.to_string(),
        Item::Enum(it) => it.ident.to_string(),
        Item::Fn(it) => it.sig.ident.to_string(),
        Item::Macro(it) => it.ident.as_ref()?.to_string(),
        Item::Static(it) => it.ident.to_string(),
        Item::Struct(it) => it.ident.to_string(),
        Item::Trait(it) => it.ident.to_string(),
        Item::Type(it) => it.ident.to_string(),
        Item::Union(it) => it.ident.to_string(),
        _ => return None,
    })
}

/// True for a `use` that gives the name on to other modules.
pub(super) fn is_re_export(visibility: &Visibility) -> bool {
    !matches!(visibility, Visibility::Inherited)
}

/// The paths of a `use`, one by one.
pub(super) fn imports(tree: &UseTree) -> Vec<Import> {
    let mut found = Vec::new();
    collect(tree, &mut Vec::new(), &mut found);
    found
}

fn collect(tree: &UseTree, before: &mut Vec<String>, found: &mut Vec<Import>) {
    let mut add = |last: String, name: String| {
        let mut path = before.clone();
        // `use a::{self}` names `a`.
        let name = if last == "self" {
            path.last().cloned().unwrap_or(name)
        } else {
            path.push(last);
            name
        };
        found.push(Import {
            path,
            name: Some(name),
        });
    };
    match tree {
        UseTree::Path(path) => {
            before.push(path.ident.to_string());
            collect(&path.tree, before, found);
            before.pop();
        }
        UseTree::Name(name) => add(name.ident.to_string(), name.ident.to_string()),
        UseTree::Rename(name) => add(name.ident.to_string(), name.rename.to_string()),
        UseTree::Glob(_) => found.push(Import {
            path: before.clone(),
            name: None,
        }),
        UseTree::Group(group) => {
            for tree in &group.items {
                collect(tree, before, found);
            }
        }
    }
}

impl SourceCrate {
    /// Where `path`, written in `module`, leads inside this crate: through imports and re-exports
    /// to the module that declares its first item. `None` for paths into other crates.
    #[must_use]
    pub fn resolve(&self, module: ModuleId, path: &[String]) -> Option<Target> {
        self.resolve_within(module, path, LONGEST_CHAIN)
    }

    fn resolve_within(&self, module: ModuleId, path: &[String], left: usize) -> Option<Target> {
        let left = left.checked_sub(1)?;
        let (first, mut rest) = path.split_first()?;
        let mut at = match first.as_str() {
            "crate" => Target::Module(self.root_of(module)),
            "self" => Target::Module(module),
            "super" => Target::Module(self.modules[module.0].parent?),
            name => self.look_up(module, name, left)?,
        };
        // What follows an item is its variant, method or associated type.
        while let (Target::Module(inside), Some((next, after))) = (&at, rest.split_first()) {
            at = if next == "super" {
                Target::Module(self.modules[inside.0].parent?)
            } else {
                self.look_up(*inside, next, left)?
            };
            rest = after;
        }
        Some(at)
    }

    fn look_up(&self, at: ModuleId, name: &str, left: usize) -> Option<Target> {
        let module = &self.modules[at.0];
        if let Some((_, child)) = module.children.iter().find(|(child, _)| child == name) {
            return Some(Target::Module(*child));
        }
        if module.declared.contains(name) {
            return Some(Target::Item(at, name.into()));
        }
        if let Some(path) = module.imports.get(name) {
            // `use name::x` in the same module: the crate `name`, not this import.
            return (path.first().map(String::as_str) != Some(name))
                .then(|| self.resolve_within(at, path, left))
                .flatten();
        }
        module
            .globs
            .iter()
            .find_map(|path| match self.resolve_within(at, path, left)? {
                Target::Module(inside) if inside != at => {
                    self.look_up(inside, name, left.checked_sub(1)?)
                }
                _ => None,
            })
    }

    /// True if `module` is in the file of `whole` or in one of the files below it. A module and its
    /// own parts may use each other: a circle is one of several rooms.
    #[must_use]
    pub fn is_part_of(&self, module: ModuleId, whole: ModuleId) -> bool {
        let file = self.modules[whole.0].file;
        let ancestors = std::iter::successors(Some(module), |at| self.modules[at.0].parent);
        ancestors
            .into_iter()
            .any(|at| self.modules[at.0].file == file)
    }

    fn root_of(&self, mut module: ModuleId) -> ModuleId {
        while let Some(parent) = self.modules[module.0].parent {
            module = parent;
        }
        module
    }
}
