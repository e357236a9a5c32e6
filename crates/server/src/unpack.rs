//! Taking the database out of what was downloaded: plain, gzipped, or in a tar archive. The bytes tell which, not the name.

use std::fs::File;
use std::io::{self, Cursor, Read, Seek};

use anyhow::{Context, Result, ensure};
use flate2::read::MultiGzDecoder;

use crate::fetch::too_large;

const GZIP: [u8; 2] = [0x1f, 0x8b];
/// A tar archive's block, and where in its first one the format is named.
const BLOCK: usize = 512;
const TAR_NAME: (usize, &[u8]) = (257, b"ustar");

/// Writes the database that is in `from` to `to`; at most `bytes_max` bytes come out, whatever went in.
pub(crate) fn unpack(from: &mut File, to: &mut File, bytes_max: u64) -> Result<()> {
    from.rewind()?;
    let head = head(from, GZIP.len())?;
    from.rewind()?;
    let plain: Box<dyn Read + '_> = if head == GZIP { Box::new(MultiGzDecoder::new(from)) } else { Box::new(from) };
    let mut bounded = plain.take(bytes_max + 1);
    let outcome = take_out(&mut bounded, to);
    ensure!(bounded.limit() > 0, too_large(bytes_max));
    outcome.context("the archive is broken")
}

fn take_out(from: &mut impl Read, to: &mut File) -> Result<()> {
    let head = head(from, BLOCK)?;
    let (at, name) = TAR_NAME;
    let is_tar = head.get(at..at + name.len()) == Some(name);
    let mut whole = Cursor::new(head).chain(from);
    if !is_tar {
        io::copy(&mut whole, to)?;
        return Ok(());
    }
    for entry in tar::Archive::new(whole).entries()? {
        let mut entry = entry?;
        if entry.header().entry_type().is_file() && entry.path()?.extension().is_some_and(|end| end == "mmdb") {
            io::copy(&mut entry, to)?;
            return Ok(());
        }
    }
    Err(anyhow::anyhow!("it holds no .mmdb file"))
}

/// The first bytes, fewer if there are no more.
fn head(from: &mut impl Read, bytes: usize) -> Result<Vec<u8>> {
    let mut head = Vec::with_capacity(bytes);
    from.take(bytes as u64).read_to_end(&mut head)?;
    Ok(head)
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
        encoder.write_all(bytes).expect("memory");
        encoder.finish().expect("memory")
    }

    fn archived(name: &str) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for (name, content) in [("edition/README.txt", &b"read me"[..]), (name, CONTENT)] {
            let mut header = tar::Header::new_ustar();
            header.set_size(content.len() as u64);
            builder.append_data(&mut header, name, content).expect("memory");
        }
        builder.into_inner().expect("memory")
    }

    fn unpacked(bytes: &[u8], bytes_max: u64) -> Result<Vec<u8>> {
        let open = || {
            let path = std::env::temp_dir().join(format!("ipseity-unpack-{:016x}", fastrand::u64(..)));
            let file = File::options().read(true).write(true).create_new(true).open(&path).expect("a file");
            std::fs::remove_file(path).expect("an open file");
            file
        };
        let (mut from, mut to) = (open(), open());
        from.write_all(bytes).expect("a file");
        unpack(&mut from, &mut to, bytes_max)?;
        to.rewind()?;
        let mut out = Vec::new();
        to.read_to_end(&mut out)?;
        Ok(out)
    }

    #[test]
    fn a_database_comes_out_of_every_wrapping() {
        let archive = archived("edition/GeoLite2-City.mmdb");
        for bytes in [CONTENT.to_vec(), gzipped(CONTENT), gzipped(&archive), archive] {
            assert_eq!(unpacked(&bytes, 10_000).expect("a database"), CONTENT);
        }
    }

    #[test]
    fn what_is_broken_or_lacks_a_database_is_refused() {
        let whole = gzipped(&archived("edition/GeoLite2-City.mmdb"));
        let cut = &whole[..whole.len() / 2];
        for (bytes, says) in [(cut, "broken"), (&gzipped(&archived("edition/a.csv")), "no .mmdb")] {
            let error = format!("{:#}", unpacked(bytes, 10_000).expect_err("a refusal"));
            assert!(error.contains(says), "{error}");
        }
    }

    #[test]
    fn a_small_download_cannot_become_a_large_file() {
        let bomb = gzipped(&vec![0; 100_000]);
        assert!(bomb.len() < 1_000);
        let error = format!("{:#}", unpacked(&bomb, 50_000).expect_err("a refusal"));
        assert!(error.contains("50000 bytes"), "{error}");
    }
}
