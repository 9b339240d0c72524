//! The web of a laboratory: pages drawn from a model, as [MFTP §5.3] has pages of the web.

pub mod pages;

pub use pages::WebPage;
