//! Restricts a program so that it can write only to its working directory.
//!
//! All its files, including core dumps it allows, are therefore in that directory. Needs root and util-linux.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// All mounts except the working directory are read-only, in a private mount namespace. Terminals and pipes stay
/// writable.
const WRAPPER_SCRIPT: &str = r#"#!/bin/sh
exec unshare --mount --propagation private sh -ec '
    mount --bind "$PWD" "$PWD"
    cd "$PWD"
    cut -d " " -f 2 /proc/self/mounts | while read -r place; do
        [ "$place" = "$PWD" ] || mount -o remount,bind,ro "$place" 2>/dev/null || true
    done
    exec prlimit --core=unlimited "$0" "$@"
' 'PROGRAM' "$@"
"#;

/// Writes a wrapper that runs the program in the sandbox and returns its path.
pub fn write_sandboxed_wrapper(program: &Path, dir: &Path) -> Result<PathBuf> {
    let name = program.file_name().context("the program has no file name")?;
    let wrapper = dir.join(format!("confined-{}", name.display()));
    fs::write(&wrapper, WRAPPER_SCRIPT.replace("PROGRAM", &program.display().to_string()))?;
    fs::set_permissions(&wrapper, Permissions::from_mode(0o755))?;
    Ok(wrapper)
}
