//! Programs that can write nowhere but in the folder in which they start.
//!
//! Whatever such a program has written is therefore in that folder, or was never written. Its memory may be dumped there too, as far as
//! the program itself allows. Needs root and util-linux.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Mounts are the process's own, and all but its folder are read-only. A sink that is no file, such as a terminal, stays one.
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

/// Writes a program into a folder that runs this one confined, and gives its path.
pub fn write_sandboxed_wrapper(program: &Path, folder: &Path) -> Result<PathBuf> {
    let name = program.file_name().context("a program has a name")?;
    let wrapper = folder.join(format!("confined-{}", name.display()));
    fs::write(&wrapper, WRAPPER_SCRIPT.replace("PROGRAM", &program.display().to_string()))?;
    fs::set_permissions(&wrapper, Permissions::from_mode(0o755))?;
    Ok(wrapper)
}
