//! Extracts the database from a download: plain, gzipped or in a tar archive. The format is detected from the bytes.

use std::fs::File;
use std::io::{self, Cursor, Read, Seek};

use anyhow::{Context, Result, ensure};
use flate2::read::MultiGzDecoder;

use crate::geo::download::too_large_message;

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
/// Size of a tar block, and the offset of the magic bytes in the first one.
const TAR_BLOCK_BYTES: usize = 512;
const TAR_MAGIC: (usize, &[u8]) = (257, b"ustar");

/// Extracts a database of at most `bytes_max` bytes.
pub(crate) fn extract_database(archive: &mut File, output: &mut File, bytes_max: u64) -> Result<()> {
    archive.rewind()?;
    let magic = read_up_to(archive, GZIP_MAGIC.len())?;
    archive.rewind()?;
    let decompressed: Box<dyn Read + '_> =
        if magic == GZIP_MAGIC { Box::new(MultiGzDecoder::new(archive)) } else { Box::new(archive) };
    let mut limited = decompressed.take(bytes_max + 1);
    let result = copy_database(&mut limited, output);
    ensure!(limited.limit() > 0, too_large_message(bytes_max));
    result.context("the archive is damaged")
}

fn copy_database(input: &mut impl Read, output: &mut File) -> Result<()> {
    let first_block = read_up_to(input, TAR_BLOCK_BYTES)?;
    let (offset, magic) = TAR_MAGIC;
    let is_tar = first_block.get(offset..offset + magic.len()) == Some(magic);
    let mut full = Cursor::new(first_block).chain(input);
    if !is_tar {
        io::copy(&mut full, output)?;
        return Ok(());
    }
    for entry in tar::Archive::new(full).entries()? {
        let mut entry = entry?;
        if entry.header().entry_type().is_file()
            && entry.path()?.extension().is_some_and(|extension| extension == "mmdb")
        {
            io::copy(&mut entry, output)?;
            return Ok(());
        }
    }
    Err(anyhow::anyhow!("it contains no .mmdb file"))
}

fn read_up_to(input: &mut impl Read, bytes_max: usize) -> Result<Vec<u8>> {
    let mut buffer = Vec::with_capacity(bytes_max);
    input.take(bytes_max as u64).read_to_end(&mut buffer)?;
    Ok(buffer)
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::*;

    const CONTENT: &[u8] = b"a database";

    fn gzipped(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).expect("write to memory");
        encoder.finish().expect("write to memory")
    }

    fn tar_archive(name: &str) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for (name, content) in [("edition/README.txt", &b"read me"[..]), (name, CONTENT)] {
            let mut header = tar::Header::new_ustar();
            header.set_size(content.len() as u64);
            builder.append_data(&mut header, name, content).expect("write to memory");
        }
        builder.into_inner().expect("write to memory")
    }

    fn extract_from(bytes: &[u8], bytes_max: u64) -> Result<Vec<u8>> {
        let temp_file = || {
            let path = std::env::temp_dir().join(format!("ipseity-extract-{:016x}", fastrand::u64(..)));
            let file = File::options().read(true).write(true).create_new(true).open(&path).expect("create file");
            std::fs::remove_file(path).expect("remove file");
            file
        };
        let (mut archive, mut output) = (temp_file(), temp_file());
        archive.write_all(bytes).expect("write file");
        extract_database(&mut archive, &mut output, bytes_max)?;
        output.rewind()?;
        let mut extracted = Vec::new();
        output.read_to_end(&mut extracted)?;
        Ok(extracted)
    }

    #[test]
    fn database_is_extracted_from_every_format() {
        let archive = tar_archive("edition/GeoLite2-City.mmdb");
        for bytes in [CONTENT.to_vec(), gzipped(CONTENT), gzipped(&archive), archive] {
            assert_eq!(extract_from(&bytes, 10_000).expect("extracts"), CONTENT);
        }
    }

    #[test]
    fn damaged_archive_or_missing_database_is_rejected() {
        let complete = gzipped(&tar_archive("edition/GeoLite2-City.mmdb"));
        let truncated = &complete[..complete.len() / 2];
        for (bytes, expected) in [(truncated, "damaged"), (&gzipped(&tar_archive("edition/a.csv")), "no .mmdb")] {
            let error = format!("{:#}", extract_from(bytes, 10_000).expect_err("is rejected"));
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn decompressed_size_is_limited() {
        let bomb = gzipped(&vec![0; 100_000]);
        assert!(bomb.len() < 1_000);
        let error = format!("{:#}", extract_from(&bomb, 50_000).expect_err("is rejected"));
        assert!(error.contains("50000 bytes"), "{error}");
    }
}
