//! Embeds the code samples of the documentation: the files listed in `samples/index.json`, in that order.

use std::error::Error;
use std::fmt::Write;
use std::path::Path;
use std::{env, fs};

use serde_json::Value;

fn main() -> Result<(), Box<dyn Error>> {
    // Read at run time: a build directory may be shared with a checkout that no longer exists.
    let root = Path::new(&env::var("CARGO_MANIFEST_DIR")?).join("../..").canonicalize()?;
    let index = root.join("samples/index.json");
    println!("cargo::rerun-if-changed={}", root.join("samples").display());
    let list: Vec<Value> = if index.is_file() { serde_json::from_slice(&fs::read(&index)?)? } else { Vec::new() };
    let mut source = String::from("&[");
    for entry in &list {
        let word = |name: &str| entry[name].as_str().ok_or(format!("{name} is missing in {entry}"));
        let file = root.join(word("file")?);
        println!("cargo::rerun-if-changed={}", file.display());
        write!(
            source,
            "CodeSample {{ id: {:?}, title: {:?}, language: {:?}, text: include_str!({file:?}) }},",
            word("id")?,
            word("title")?,
            word("language")?
        )?;
    }
    source.push(']');
    fs::write(Path::new(&env::var("OUT_DIR")?).join("samples.rs"), source)?;
    Ok(())
}
