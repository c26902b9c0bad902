//! The secret that proves that a connection belongs to the run, and where it comes from.
//!
//! Every rank of a run has the same secret: text from the environment, or from a file that only the user can read. The
//! key of the control channel is a hash of this text. The secret is never printed, never stored in a record, and never
//! on a command line.

use std::fmt;
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use snow::params::HashChoice;
use snow::resolvers::{CryptoResolver, DefaultResolver};

use tonnage_units::{Error, Result};

/// Minimum length of a secret, because a shorter one could be guessed.
const TEXT_BYTES_MIN: usize = 16;
/// Maximum length of a secret. A longer file is not a secret.
const TEXT_BYTES_MAX: u64 = 4096;

/// Length of a file's hash. With this length, accidental collisions are ruled out.
const HASH_BYTES: usize = 16;

/// The key of the control channel. Its 32 bytes are never printed.
#[derive(Clone)]
pub struct Secret {
    key: [u8; 32],
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret")
    }
}

impl Secret {
    /// Derives the key from a secret text. White space around the text is ignored.
    pub fn from_text(text: &str) -> Result<Self> {
        let text = text.trim();
        if text.len() < TEXT_BYTES_MIN {
            return Err(Error::Usage(format!(
                "the secret has {} bytes; at least {TEXT_BYTES_MIN} are needed (`openssl rand -hex 32` makes a good one)",
                text.len()
            )));
        }
        Ok(Self {
            key: blake2s(&[b"tonnage control secret\0", text.as_bytes()])?,
        })
    }

    /// Finds this user's secret: `TONNAGE_SECRET`, the file `TONNAGE_SECRET_FILE`, or `$XDG_CONFIG_HOME/tonnage/secret`
    /// (`~/.config/tonnage/secret`), which is created at first use.
    ///
    /// # Errors
    /// [`Error::Usage`] when the text is too short, other users may read the file, or there is no home directory.
    /// [`Error::Io`] when the file cannot be read or created.
    pub fn find(env: &dyn Fn(&str) -> Option<String>) -> Result<Self> {
        let about = |source: &str| {
            let source = source.to_owned();
            move |error| match error {
                Error::Usage(text) => Error::Usage(format!("{source}: {text}")),
                other => other,
            }
        };
        if let Some(text) = env("TONNAGE_SECRET") {
            return Self::from_text(&text).map_err(about("TONNAGE_SECRET"));
        }
        let path = match env("TONNAGE_SECRET_FILE") {
            Some(path) => PathBuf::from(path),
            None => {
                let path = default_path(env)?;
                create_once(&path)?;
                path
            }
        };
        Self::from_text(&read_private(&path)?).map_err(about(&path.display().to_string()))
    }

    /// Derives a key for one run. It differs from the keys of the user's other runs. Two runs that happen to use the
    /// same port then refuse each other's ranks.
    pub fn derive_for_run(&self, name: &str) -> Result<Self> {
        Ok(Self {
            key: blake2s(&[b"tonnage run\0", &self.key, name.as_bytes()])?,
        })
    }

    /// Returns the key of the handshake.
    pub(crate) fn key(&self) -> &[u8; 32] {
        &self.key
    }
}

/// Generates a secret text of 64 hexadecimal digits, for ranks that this process starts. Pass it in the environment
/// variable `TONNAGE_SECRET`, which other users cannot read, unlike a command line.
pub fn generate_text() -> Result<String> {
    let mut bytes = [0u8; 32];
    getrandom::fill(&mut bytes)
        .map_err(|error| Error::Failed(format!("no random bytes from the system: {error}")))?;
    Ok(hex(&bytes))
}

/// Returns a hash of the plan, which ranks compare when they join.
pub fn plan_hash(plan_text: &str) -> Result<String> {
    Ok(hex(&blake2s(&[b"tonnage plan\0", plan_text.as_bytes()])?))
}

/// Returns the hash and length of a file.
pub fn content_hash(path: &Path) -> Result<(String, u64)> {
    let failed = |error| Error::io(format!("cannot read {}", path.display()), error);
    let mut file = File::open(path).map_err(failed)?;
    let mut hash = DefaultResolver
        .resolve_hash(&HashChoice::Blake2b)
        .ok_or_else(|| Error::Failed("this build has no BLAKE2b".into()))?;
    hash.reset();
    let (mut bytes, mut block) = (0, vec![0; 1 << 20]);
    loop {
        let count = file.read(&mut block).map_err(failed)?;
        let Some(read) = block.get(..count).filter(|read| !read.is_empty()) else {
            break;
        };
        hash.input(read);
        bytes += count as u64;
    }
    let mut whole = [0u8; 64];
    hash.result(&mut whole);
    let (short, _) = whole.split_at(HASH_BYTES);
    Ok((hex(short), bytes))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn blake2s(parts: &[&[u8]]) -> Result<[u8; 32]> {
    let mut hash = DefaultResolver
        .resolve_hash(&HashChoice::Blake2s)
        .ok_or_else(|| Error::Failed("this build has no BLAKE2s".into()))?;
    hash.reset();
    for part in parts {
        hash.input(part);
    }
    let mut key = [0u8; 32];
    hash.result(&mut key);
    Ok(key)
}

fn default_path(env: &dyn Fn(&str) -> Option<String>) -> Result<PathBuf> {
    let config = env("XDG_CONFIG_HOME").filter(|path| path.starts_with('/'));
    let home = || env("HOME").filter(|home| !home.is_empty());
    let dir = config.map(PathBuf::from);
    let dir = dir.or_else(|| Some(Path::new(&home()?).join(".config")));
    dir.map(|dir| dir.join("tonnage/secret")).ok_or_else(|| {
        Error::Usage(
            "there is no home directory for the secret of the control channel: set TONNAGE_SECRET to the same text of \
             at least 16 characters for all ranks, or TONNAGE_SECRET_FILE"
                .into(),
        )
    })
}

/// Reads a file that belongs to this user or root, and that only its owner may read.
fn read_private(path: &Path) -> Result<String> {
    let shown = path.display();
    let file = File::open(path)
        .map_err(|error| Error::io(format!("cannot open the secret {shown}"), error))?;
    let metadata = file
        .metadata()
        .map_err(|error| Error::io(format!("cannot look at {shown}"), error))?;
    let mode = metadata.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(Error::Usage(format!(
            "others may use the secret {shown} (mode {mode:03o}): run `chmod 600 {shown}`, or make a new one if it may \
             have been read"
        )));
    }
    let (owner, own) = (metadata.uid(), rustix::process::geteuid().as_raw());
    if owner != own && owner != 0 {
        return Err(Error::Usage(format!(
            "the secret {shown} belongs to user {owner}, who knows it: make one of your own, as by `openssl rand -hex 32`, or \
             run `chown {own} {shown}` if that user may join your runs"
        )));
    }
    let mut text = String::new();
    file.take(TEXT_BYTES_MAX)
        .read_to_string(&mut text)
        .map_err(|error| Error::io(format!("cannot read the secret {shown}"), error))?;
    Ok(text)
}

/// Creates the file with the secret unless it exists. If two ranks try at once, one creates it and both read it. The
/// file is written under a temporary name and then linked, so it is always complete.
fn create_once(path: &Path) -> Result<()> {
    if path.exists() {
        return Ok(());
    }
    let failed = |what: &str, error: io::Error| {
        Error::io(format!("cannot {what} {}", path.display()), error)
    };
    if let Some(dir) = path.parent() {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)
            .map_err(|error| failed("make the directory of", error))?;
    }
    let text = generate_text()?;
    let unique = generate_text()?;
    let temporary = path.with_extension(unique.get(..16).unwrap_or(&unique));
    let written = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&temporary)
        .and_then(|mut file| {
            file.write_all(format!("{text}\n").as_bytes())
                .and_then(|()| file.sync_all())
        })
        .and_then(|()| match fs::hard_link(&temporary, path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            other => other,
        });
    let removed = fs::remove_file(&temporary);
    written.map_err(|error| failed("make", error))?;
    removed.map_err(|error| failed("tidy up beside", error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::env;

    #[test]
    fn the_environment_comes_first_and_short_texts_are_refused() {
        let long = "0123456789abcdef";
        let found = Secret::find(&env(&format!("TONNAGE_SECRET={long}"))).unwrap();
        let spaced = Secret::from_text(" 0123456789abcdef\n").unwrap();
        assert_eq!(found.key(), spaced.key());
        for short in ["", "0123456789abcde"] {
            let error = Secret::find(&env(&format!("TONNAGE_SECRET={short}"))).unwrap_err();
            assert_eq!(error.exit_code(), 2);
            assert!(error.to_string().contains("TONNAGE_SECRET"), "{error}");
        }
    }

    #[test]
    fn each_run_has_its_own_key() {
        let secret = Secret::from_text("hello hello hello").unwrap();
        let other = Secret::from_text("other other other").unwrap();
        let keys = [
            *secret.key(),
            *secret.derive_for_run("step 7.0").unwrap().key(),
            *secret.derive_for_run("step 10007.0").unwrap().key(),
            *other.derive_for_run("step 7.0").unwrap().key(),
        ];
        let different: std::collections::BTreeSet<_> = keys.iter().collect();
        assert_eq!(different.len(), keys.len());
        assert_eq!(secret.derive_for_run("step 7.0").unwrap().key(), &keys[1]);
    }

    #[test]
    fn a_secret_prints_nothing() {
        let secret = Secret::from_text("hello hello hello").unwrap();
        assert_eq!(format!("{secret:?}"), "Secret");
    }

    /// Creates a secret file with this mode and owner, and returns the result of `Secret::find`.
    fn found_with(mode: u32, owner: Option<u32>) -> Result<Secret> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("secret");
        fs::write(&path, "0123456789abcdef").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        std::os::unix::fs::chown(&path, owner, None).unwrap();
        Secret::find(&env(&format!("TONNAGE_SECRET_FILE={}", path.display())))
    }

    #[test]
    fn a_file_that_others_may_read_is_refused() {
        let error = found_with(0o640, None).unwrap_err();
        assert!(error.to_string().contains("chmod 600"));
        found_with(0o600, None).unwrap();
    }

    #[test]
    fn a_file_of_another_user_is_refused() {
        if !rustix::process::geteuid().is_root() {
            return println!("skip: only root can give a file to another user");
        }
        let refused = found_with(0o600, Some(65_534)).unwrap_err();
        assert_eq!(refused.exit_code(), 2);
        let refused = refused.to_string();
        assert!(refused.contains("belongs to user 65534"), "{refused}");
        assert!(refused.contains("chown 0 "), "{refused}");
    }

    #[test]
    fn ranks_that_start_at_once_agree_on_one_new_secret() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().to_str().unwrap().to_owned();
        let threads: Vec<_> = (0..8)
            .map(|_| {
                let home = home.clone();
                std::thread::spawn(move || {
                    *Secret::find(&env(&format!("HOME={home}"))).unwrap().key()
                })
            })
            .collect();
        let keys: Vec<_> = threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect();
        assert!(keys.iter().all(|key| key == &keys[0]));
        let folder = dir.path().join(".config/tonnage");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&folder), 0o700);
        assert_eq!(mode(&folder.join("secret")), 0o600);
        let files = fs::read_dir(folder).unwrap().count();
        assert_eq!(files, 1, "temporary files stayed behind");
    }

    #[test]
    fn without_a_home_the_error_names_what_to_set() {
        let error = Secret::find(&env("")).unwrap_err();
        assert!(error.to_string().contains("TONNAGE_SECRET"));
    }

    #[test]
    fn hashes_and_fresh_texts_differ() {
        assert_ne!(plan_hash("a").unwrap(), plan_hash("b").unwrap());
        assert_ne!(generate_text().unwrap(), generate_text().unwrap());
        assert_eq!(generate_text().unwrap().len(), 64);
    }
}
