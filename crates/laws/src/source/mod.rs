//! The workspace's Rust sources, parsed: files, modules and what they declare, without tests.
//!
//! Files are found as the compiler finds them, from the roots of each crate along `mod` declarations,
//! so that a file under `#[cfg(test)]` is not taken for product code.

mod census;
mod modules;
#[cfg(test)]
mod tests;

use std::fs;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use syn::spanned::Spanned;
use syn::{Attribute, Item};

pub use census::{Census, Count};
pub use modules::{Module, ModuleId, Target};

/// One file of a crate's `src`.
pub struct SourceFile {
    /// Relative to the workspace.
    pub path: String,
    /// All its lines.
    pub lines: usize,
    /// Lines that belong to tests.
    pub test_lines: usize,
}

/// One crate: its files and the modules in them.
pub struct SourceCrate {
    /// The name of its folder.
    pub name: String,
    /// Its files outside tests.
    pub files: Vec<SourceFile>,
    /// Its modules outside tests; the roots are those without a parent.
    pub modules: Vec<Module>,
}

/// Parses the sources of all crates under `workspace`/crates but this one, which holds tests.
///
/// # Errors
/// Names the file that could not be read or parsed.
pub fn load(workspace: &Path) -> Result<Vec<SourceCrate>, String> {
    let folder = workspace.join("crates");
    let entries =
        fs::read_dir(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let mut names: Vec<_> = entries
        .filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()))
        .filter(|name| name != "laws" && folder.join(name).join("src").is_dir())
        .collect();
    names.sort();
    names
        .into_iter()
        .map(|name| SourceCrate::load(workspace, name))
        .collect()
}

impl SourceCrate {
    fn load(workspace: &Path, name: String) -> Result<Self, String> {
        let src = PathBuf::from("crates").join(&name).join("src");
        let mut found = Self {
            name,
            files: Vec::new(),
            modules: Vec::new(),
        };
        for root in ["lib.rs", "main.rs"] {
            let path = src.join(root);
            if workspace.join(&path).is_file() {
                found.add_file(workspace, &path, &src, None, "crate".into())?;
            }
        }
        Ok(found)
    }

    /// Parses `path` as the module `name` of `parent`; its own modules lie in `children`.
    fn add_file(
        &mut self,
        workspace: &Path,
        path: &Path,
        children: &Path,
        parent: Option<ModuleId>,
        name: String,
    ) -> Result<(), String> {
        let text = fs::read_to_string(workspace.join(path))
            .map_err(|error| format!("{}: {error}", path.display()))?;
        let parsed =
            syn::parse_file(&text).map_err(|error| format!("{}: {error}", path.display()))?;
        let file = self.files.len();
        self.files.push(SourceFile {
            path: path.to_string_lossy().into_owned(),
            lines: text.lines().count(),
            test_lines: parsed.items.iter().filter_map(test_lines).sum(),
        });
        self.add_module(workspace, file, children, parent, name, parsed.items)
    }

    fn add_module(
        &mut self,
        workspace: &Path,
        file: usize,
        children: &Path,
        parent: Option<ModuleId>,
        name: String,
        items: Vec<Item>,
    ) -> Result<(), String> {
        let items: Vec<Item> = items
            .into_iter()
            .filter(|item| !is_test(attributes(item)))
            .collect();
        let id = ModuleId(self.modules.len());
        if let Some(parent) = parent {
            self.modules[parent.0].children.push((name.clone(), id));
        }
        let inner: Vec<_> = items
            .iter()
            .filter_map(|item| match item {
                Item::Mod(module) => Some(module.clone()),
                _ => None,
            })
            .collect();
        self.modules.push(Module::new(name, file, parent, items));
        for module in inner {
            let name = module.ident.to_string();
            let below = children.join(&name);
            if let Some((_, items)) = module.content {
                self.add_module(workspace, file, &below, Some(id), name, items)?;
                continue;
            }
            let flat = below.with_extension("rs");
            let path = if workspace.join(&flat).is_file() {
                flat
            } else {
                below.join("mod.rs")
            };
            self.add_file(workspace, &path, &below, Some(id), name)?;
        }
        Ok(())
    }
}

/// The lines of an item that belongs to tests.
fn test_lines(item: &Item) -> Option<usize> {
    is_test(attributes(item)).then(|| lines_of(item).count())
}

/// The lines of something parsed, its attributes and doc comments included.
fn lines_of(item: &impl Spanned) -> RangeInclusive<usize> {
    let span = item.span();
    span.start().line..=span.end().line
}

/// True for `#[test]` and for a `#[cfg]` that is met in tests only.
fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        if attribute.path().is_ident("test") {
            return true;
        }
        let syn::Meta::List(list) = &attribute.meta else {
            return false;
        };
        let condition = list.tokens.to_string();
        let words: Vec<&str> = condition
            .split(|c: char| !c.is_alphanumeric() && c != '_')
            .collect();
        list.path.is_ident("cfg")
            && words.contains(&"test")
            && !words.contains(&"not")
            && !words.contains(&"any")
    })
}

fn attributes(item: &Item) -> &[Attribute] {
    match item {
        Item::Const(it) => &it.attrs,
        Item::Enum(it) => &it.attrs,
        Item::ExternCrate(it) => &it.attrs,
        Item::Fn(it) => &it.attrs,
        Item::ForeignMod(it) => &it.attrs,
        Item::Impl(it) => &it.attrs,
        Item::Macro(it) => &it.attrs,
        Item::Mod(it) => &it.attrs,
        Item::Static(it) => &it.attrs,
        Item::Struct(it) => &it.attrs,
        Item::Trait(it) => &it.attrs,
        Item::TraitAlias(it) => &it.attrs,
        Item::Type(it) => &it.attrs,
        Item::Union(it) => &it.attrs,
        Item::Use(it) => &it.attrs,
        _ => &[],
    }
}
