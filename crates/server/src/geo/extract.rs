//! Extracts the database from a download: plain, gzipped or in a tar archive. The format is detected from the bytes.

use std::io::{self, Cursor, Read, Seek, Write};

use anyhow::{Context, Result, ensure};
use flate2::read::MultiGzDecoder;
use tar::PaxExtensions;

const GZIP_MAGIC: [u8; 2] = [0x1f, 0x8b];
/// Size of a tar block, and the offset of the magic bytes in the first one.
const TAR_BLOCK_BYTES: usize = 512;
const TAR_MAGIC: (usize, &[u8]) = (257, b"ustar");
/// Maximum size of an entry that holds the long name of the next entry. It is read into memory.
const TAR_NAME_BYTES_MAX: usize = 4096;

pub(crate) fn too_large_message(bytes_max: u64) -> String {
    format!("the file is larger than the {bytes_max} bytes of [geo] update_bytes_max")
}

/// Extracts a database of at most `bytes_max` bytes.
pub(crate) fn extract_database(
    archive: &mut (impl Read + Seek),
    output: &mut impl Write,
    bytes_max: u64,
) -> Result<()> {
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

fn copy_database(input: &mut impl Read, output: &mut impl Write) -> Result<()> {
    let first_block = read_up_to(input, TAR_BLOCK_BYTES)?;
    let (offset, magic) = TAR_MAGIC;
    let is_tar = first_block.get(offset..offset + magic.len()) == Some(magic);
    let mut full = Cursor::new(first_block).chain(input);
    if !is_tar {
        io::copy(&mut full, output)?;
        return Ok(());
    }
    let mut long_name = None;
    // Raw: otherwise the library reads long names without a limit.
    for entry in tar::Archive::new(full).entries()?.raw(true) {
        let mut entry = entry?;
        let entry_type = entry.header().entry_type();
        if entry_type.is_gnu_longname() {
            long_name = Some(read_name_entry(&mut entry)?);
        } else if entry_type.is_pax_local_extensions() {
            long_name = pax_path(&read_name_entry(&mut entry)?);
        } else {
            let name = long_name.take().unwrap_or_else(|| entry.path_bytes().into_owned());
            if entry_type.is_file() && name.ends_with(b".mmdb") {
                io::copy(&mut entry, output)?;
                return Ok(());
            }
        }
    }
    Err(anyhow::anyhow!("it contains no .mmdb file"))
}

fn read_name_entry(entry: &mut impl Read) -> Result<Vec<u8>> {
    let mut content = read_up_to(entry, TAR_NAME_BYTES_MAX + 1)?;
    ensure!(content.len() <= TAR_NAME_BYTES_MAX, "it contains a name longer than {TAR_NAME_BYTES_MAX} bytes");
    // GNU tar ends the name with a zero byte.
    content.truncate(content.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1));
    Ok(content)
}

fn pax_path(extensions: &[u8]) -> Option<Vec<u8>> {
    let path = PaxExtensions::new(extensions).flatten().find(|extension| extension.key_bytes() == b"path");
    path.map(|extension| extension.value_bytes().to_vec())
}

fn read_up_to(input: &mut impl Read, bytes_max: usize) -> Result<Vec<u8>> {
    let mut buffer = Vec::with_capacity(bytes_max);
    input.take(bytes_max as u64).read_to_end(&mut buffer)?;
    Ok(buffer)
}

#[cfg(test)]
mod tests {
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
        let mut extracted = Vec::new();
        extract_database(&mut Cursor::new(bytes), &mut extracted, bytes_max)?;
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

    #[test]
    fn long_names_in_an_archive_are_read_up_to_a_limit() {
        let long_name = |name_bytes: usize| format!("{}/GeoLite2-City.mmdb", "d".repeat(name_bytes));
        assert_eq!(extract_from(&tar_archive(&long_name(300)), 100_000).expect("extracts"), CONTENT);

        let mut with_pax = tar::Builder::new(Vec::new());
        let name = long_name(300);
        with_pax.append_pax_extensions([("path", name.as_bytes())]).expect("write to memory");
        let mut header = tar::Header::new_ustar();
        header.set_size(CONTENT.len() as u64);
        with_pax.append_data(&mut header, "cut", CONTENT).expect("write to memory");
        let with_pax = with_pax.into_inner().expect("write to memory");
        assert_eq!(extract_from(&with_pax, 100_000).expect("extracts"), CONTENT);

        let error = extract_from(&tar_archive(&long_name(1_000_000)), 10_000_000).expect_err("is rejected");
        assert!(format!("{error:#}").contains("longer than 4096 bytes"), "{error:#}");
    }
}
