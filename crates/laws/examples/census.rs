//! Prints what the ceilings count, with all examples.
fn main() -> Result<(), String> {
    let workspace = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let crates = whimbrel_laws::source::load(&workspace)?;
    for count in whimbrel_laws::source::Census::take(&crates).counts() {
        println!("{} {}", count.found, count.row);
        for example in &count.examples {
            println!("    {example}");
        }
    }
    Ok(())
}
