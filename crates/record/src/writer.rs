//! Writes records to a file, one JSON line each, as soon as a point has ended.
//!
//! A file of records survives an interrupted run. A line is written with one call. If only the beginning of a line
//! fits, this beginning is removed again. If that fails too, it stays at the end of the file, as the only broken line.
//! The writer notices at the next record, or at the end, if another process has removed or changed the file.
//! [`RecordPlace`] can check this in between. A file is locked while it is open, so that only one run writes to it.
//! [`super::read`] reads files.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{
    Access, FlockOperation, OFlags, access, fcntl_getfl, fcntl_setfl, flock, statvfs,
};
use rustix::io::Errno;

use super::links::resolve_links;
use super::place::describe_change;
use super::{Record, RecordPlace, checksum};
use tonnage_units::{Error, Result};

use super::read::{ReadOutcome, missing, name_too_long, read_records};

/// Minimum free space to start with. A record takes a few kilobytes, so a sweep would soon fail with less.
const FREE_BYTES_MIN: u64 = 1 << 20;

/// Appends records to a file, or to any other sink.
pub struct RecordWriter {
    sink: Sink,
    /// Name in error messages.
    name: String,
}

enum Sink {
    /// A regular file, opened for appending.
    File {
        file: File,
        /// The name that the file was opened by. It must keep referring to this file.
        path: PathBuf,
        /// Length of the file up to the end of the last whole line.
        good_bytes: u64,
        /// True if a broken line follows `good_bytes`. It must be removed before the next line is written.
        broken: bool,
    },
    /// A pipe, a terminal, or memory. Written bytes cannot be removed again.
    Stream(Box<dyn Write + Send>),
}

impl RecordWriter {
    /// Creates a file, or truncates an existing one.
    ///
    /// # Errors
    /// [`Error::Io`] with the path if the file cannot be created. [`Error::Usage`] if another run has it open, or if it
    /// is a FIFO without a reader.
    pub fn create(path: &Path) -> Result<Self> {
        let file = open(path, true)?;
        if is_regular(&file) {
            file.set_len(0).map_err(|error| write_error(path, error))?;
        }
        Self::to_file(path, file)
    }

    /// Appends to a file, or creates it.
    ///
    /// # Errors
    /// [`Error::Io`] with the path if the file cannot be opened. [`Error::Usage`] if its last line is broken (which
    /// [`resume`] repairs), if another run has it open, or if it is a FIFO without a reader.
    pub fn append(path: &Path) -> Result<Self> {
        let file = open(path, true)?;
        if is_regular(&file) && !ends_with_newline(path, &file)? {
            return Err(Error::Usage(format!(
                "{} ends in the middle of a line: name another file, or resume the interrupted run with --resume, \
                 which drops that line",
                path.display()
            )));
        }
        Self::to_file(path, file)
    }

    /// Writes to a sink that is not a file. Error messages call it `name`.
    pub fn to_sink(sink: impl Write + Send + 'static, name: impl Into<String>) -> Self {
        Self {
            sink: Sink::Stream(Box::new(sink)),
            name: name.into(),
        }
    }

    fn to_file(path: &Path, mut file: File) -> Result<Self> {
        if !is_regular(&file) {
            return Ok(Self::to_sink(file, path.display().to_string()));
        }
        let good_bytes = file
            .seek(SeekFrom::End(0))
            .map_err(|error| write_error(path, error))?;
        let sink = Sink::File {
            file,
            path: path.to_owned(),
            good_bytes,
            broken: false,
        };
        Ok(Self {
            sink,
            name: path.display().to_string(),
        })
    }

    /// Writes one record as one line. When the call returns, the line has been handed to the system.
    ///
    /// # Errors
    /// [`Error::Io`] with the path and the next step: the disk is full, the pipe closed, … The writer remains usable: a
    /// file's earlier lines stay intact, and a broken line is removed before the next one. [`Error::Failed`] if another
    /// process has removed, replaced or changed the file. Nothing more is written to this file.
    pub fn write(&mut self, record: &Record) -> Result<()> {
        let text = checksum::line_with_checksum(record)? + "\n";
        self.check_untouched()?;
        self.write_line(text.as_bytes())
            .map_err(|error| self.failed(error))
    }

    /// Returns the identity of the file; `None` for a stream.
    pub fn place(&self) -> Option<RecordPlace> {
        match &self.sink {
            Sink::File { file, path, .. } => RecordPlace::from_opened(path, file),
            Sink::Stream(_) => None,
        }
    }

    /// Fails if another process has removed, replaced or changed the file. The system does not report these changes: an
    /// open file can still be written after it was removed, and appended to after it was changed.
    fn check_untouched(&self) -> Result<()> {
        let Sink::File {
            file,
            path,
            good_bytes,
            broken,
        } = &self.sink
        else {
            return Ok(());
        };
        let lost = |what: String| {
            let name = &self.name;
            Err(Error::Failed(format!(
                "{name} {what} during the run: records can no longer be written to it"
            )))
        };
        let opened = file.metadata().map_err(|error| self.failed(error))?;
        let became = describe_change(path, (opened.dev(), opened.ino()));
        if let Some(what) = became.map_err(|error| self.failed(error))? {
            return lost(what.to_owned());
        }
        match opened.len() {
            bytes if bytes < *good_bytes => {
                lost(format!("was cut from {good_bytes} to {bytes} bytes"))
            }
            bytes if bytes > *good_bytes && !broken => {
                lost("was written to by another process".to_owned())
            }
            _ => Ok(()),
        }
    }

    fn write_line(&mut self, line: &[u8]) -> io::Result<()> {
        match &mut self.sink {
            Sink::Stream(stream) => {
                stream.write_all(line)?;
                stream.flush()
            }
            Sink::File {
                file,
                good_bytes,
                broken,
                ..
            } => {
                if *broken {
                    file.set_len(*good_bytes)?;
                    *broken = false;
                }
                if let Err(error) = file.write_all(line) {
                    // Removing the fragment needs no free space, so it works on a full disk too.
                    *broken = file.set_len(*good_bytes).is_err();
                    return Err(error);
                }
                *good_bytes += line.len() as u64;
                Ok(())
            }
        }
    }

    /// Finishes the file. The sync also reveals a full disk, which network file systems report only then.
    ///
    /// # Errors
    /// [`Error::Io`] if the data cannot be stored. [`Error::Failed`] if another process has removed, replaced or
    /// changed the file.
    pub fn finish(mut self) -> Result<()> {
        self.check_untouched()?;
        let ended = match &mut self.sink {
            Sink::File { file, .. } => file.sync_all(),
            Sink::Stream(stream) => stream.flush(),
        };
        ended.map_err(|error| self.failed(error))
    }

    fn failed(&self, error: io::Error) -> Error {
        let advice = match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                " (earlier records are kept; make room and resume the run with --resume)"
            }
            io::ErrorKind::FileTooLarge => {
                " (earlier records are kept; raise the limit on file sizes, which ulimit -f shows, and resume the run \
                 with --resume)"
            }
            io::ErrorKind::BrokenPipe => " (its reader has closed it)",
            _ => {
                " (earlier records are kept; name another file with -o, or try again with --resume)"
            }
        };
        Error::io(
            format!("cannot write a record to {}{advice}", self.name),
            error,
        )
    }
}

/// Resumes an interrupted file: returns its complete records, and a writer that appends to them. A broken last line is
/// removed.
///
/// # Errors
/// As for [`read_records`] and [`RecordWriter::append`].
pub fn resume(path: &Path) -> Result<(Vec<Record>, RecordWriter)> {
    // Opening locks the file. This happens before reading, so that no other run can append records after the ones read
    // here.
    let mut file = open(path, false)?;
    if !is_regular(&file) {
        let path = path.display();
        return Err(Error::Usage(format!(
            "--resume needs a file of records, and {path} is not a regular file"
        )));
    }
    let ReadOutcome {
        records,
        truncated_tail,
        good_bytes,
    } = read_records(path)?;
    if truncated_tail {
        file.set_len(good_bytes)
            .map_err(|error| write_error(path, error))?;
    }
    if !ends_with_newline(path, &file)? {
        file.write_all(b"\n")
            .map_err(|error| write_error(path, error))?;
    }
    Ok((records, RecordWriter::to_file(path, file)?))
}

/// Checks before measuring whether a results file could be written, without changing anything. The directory must exist
/// and be writable, and the name must not be that of a directory. If the file exists, it must be writable, and no other
/// run may have it open. At least 1 MiB must be free.
///
/// # Errors
/// [`Error::Usage`] if the user must choose another name, [`Error::Io`] if the system refuses this one.
pub fn check_writable(path: &Path) -> Result<()> {
    let shown = path.display();
    let directory = directory_of(path)?;
    match fs::metadata(path) {
        Ok(found) if found.is_dir() => {
            let example = path.join("results.jsonl");
            let example = example.display();
            return Err(Error::Usage(format!(
                "{shown} is a directory: name a file in it, such as {example}"
            )));
        }
        Ok(found) => {
            access(path, Access::WRITE_OK).map_err(|error| write_error(path, error))?;
            // Only regular files are opened here: opening a FIFO would wait for its other end. Without read permission,
            // the lock is checked later, when the file is opened for writing.
            if found.is_file()
                && let Ok(file) = File::open(path)
            {
                lock(&file, path, FlockOperation::NonBlockingLockShared)?;
            }
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if !directory.is_dir() {
                let directory = directory.display();
                return Err(Error::Usage(format!(
                    "{shown} cannot be created: there is no directory {directory}. Create it with: mkdir -p {directory}"
                )));
            }
            access(&directory, Access::WRITE_OK | Access::EXEC_OK)
                .map_err(|error| write_error(path, error))?;
        }
        Err(error) if error.kind() == io::ErrorKind::InvalidFilename => {
            return Err(name_too_long(path));
        }
        Err(error) => return Err(write_error(path, error)),
    }
    let room = statvfs(&directory).map_err(|error| write_error(path, error))?;
    check_room(path, room.f_bavail.saturating_mul(room.f_frsize))
}

fn check_room(path: &Path, free_bytes: u64) -> Result<()> {
    if free_bytes >= FREE_BYTES_MIN {
        return Ok(());
    }
    Err(Error::Failed(format!(
        "the file system of {} has {free_bytes} bytes free, too few for results: make room, or name a file elsewhere",
        path.display()
    )))
}

/// Returns the directory of a file that need not exist yet.
fn directory_of(path: &Path) -> Result<PathBuf> {
    if path.file_name().is_none() && !path.is_dir() {
        return Err(Error::Usage(format!(
            "{:?} is not a file name",
            path.display()
        )));
    }
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    Ok(parent.unwrap_or(Path::new(".")).to_owned())
}

/// Opens a file for appending, and locks it so that no other run can write to it.
fn open(path: &Path, create: bool) -> Result<File> {
    // Another user with write access to the directory may have put a link there, or may do so at this moment.
    let end = &resolve_links(path).map_err(|error| write_error(path, error))?;
    let nofollow = match end.starts_with("/proc") {
        true => OFlags::empty(),
        false => OFlags::NOFOLLOW,
    };
    let is_fifo = fs::metadata(end).is_ok_and(|found| found.file_type().is_fifo());
    let with = |read: bool, new: bool| {
        let mut flags = nofollow;
        if is_fifo {
            // Without this flag, opening a FIFO would silently wait for a reader, possibly forever.
            flags |= OFlags::NONBLOCK;
        }
        OpenOptions::new()
            .read(read && !is_fifo)
            .append(true)
            .create_new(new)
            .custom_flags(flags.bits().cast_signed())
            .open(end)
    };
    // Opened for reading too if permissions allow it, because the file's last byte is checked.
    let there = with(true, false).or_else(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => with(false, false),
        io::ErrorKind::NotFound if create => with(true, true),
        _ => Err(error),
    });
    let file = there.map_err(|error| {
        if error.raw_os_error() == Some(Errno::NXIO.raw_os_error()) {
            return Error::Usage(format!(
                "{} is a FIFO without a reader: start its reader first",
                path.display()
            ));
        }
        match error.kind() {
            io::ErrorKind::NotFound if !create => missing(path),
            _ => write_error(path, error),
        }
    })?;
    if is_fifo {
        let blocking =
            fcntl_getfl(&file).and_then(|flags| fcntl_setfl(&file, flags - OFlags::NONBLOCK));
        blocking.map_err(|error| write_error(path, error))?;
    }
    if is_regular(&file) {
        lock(&file, path, FlockOperation::NonBlockingLockExclusive)?;
    }
    Ok(file)
}

/// Locks the file. If two runs wrote to one file, their records would mix, and each would resume with the other's
/// records.
fn lock(file: &File, path: &Path, how: FlockOperation) -> Result<()> {
    match flock(file, how) {
        Err(Errno::WOULDBLOCK) => Err(Error::Usage(format!(
            "another run is writing its results to {}: name another file, or wait until it has ended",
            path.display()
        ))),
        // Some network file systems have no locks. Another run is then noticed at the next record, because the file's
        // size changed.
        Ok(()) | Err(_) => Ok(()),
    }
}

fn write_error(path: &Path, error: impl Into<io::Error>) -> Error {
    let what = format!(
        "cannot write results to {} (name another file with -o)",
        path.display()
    );
    Error::io(what, error)
}

fn is_regular(file: &File) -> bool {
    file.metadata().is_ok_and(|found| found.is_file())
}

/// Returns whether the file is empty or ends with a newline.
fn ends_with_newline(path: &Path, file: &File) -> Result<bool> {
    let last = || -> io::Result<bool> {
        let Some(last) = file.metadata()?.len().checked_sub(1) else {
            return Ok(true);
        };
        let mut byte = [0];
        file.read_exact_at(&mut byte, last)?;
        Ok(byte == *b"\n")
    };
    last().map_err(|error| Error::io(format!("cannot read {}", path.display()), error))
}

#[cfg(test)]
mod tests {
    use super::super::tests::sample;
    use super::*;

    #[test]
    fn a_fragment_that_could_not_be_removed_is_removed_before_the_next_line() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("results.jsonl");
        let mut writer = RecordWriter::create(&path).unwrap();
        writer.write(&sample(1)).unwrap();
        fs::OpenOptions::new()
            .append(true)
            .open(&path)
            .unwrap()
            .write_all(b"{\"sch")
            .unwrap();
        if let Sink::File { broken, .. } = &mut writer.sink {
            *broken = true;
        }
        writer.write(&sample(2)).unwrap();
        assert_eq!(read_records(&path).unwrap().records, [sample(1), sample(2)]);
    }

    /// If a link belongs to another user, its target must be neither written nor created.
    #[test]
    fn a_link_of_another_user_is_refused() {
        if !rustix::process::geteuid().is_root() {
            return println!("skip: only root can make a link of another user");
        }
        let directory = tempfile::tempdir().unwrap();
        let [victim, path] = ["precious", "r.jsonl"].map(|name| directory.path().join(name));
        for content in [Some("precious\n"), None] {
            let _ = fs::remove_file(&victim);
            content
                .into_iter()
                .for_each(|text| fs::write(&victim, text).unwrap());
            std::os::unix::fs::symlink(&victim, &path).unwrap();
            std::os::unix::fs::lchown(&path, Some(12_345), None).unwrap();
            let refused = [
                RecordWriter::append(&path).err().unwrap(),
                RecordWriter::create(&path).err().unwrap(),
                resume(&path).err().unwrap(),
            ];
            for error in refused {
                let error = error.to_string();
                assert!(
                    error.contains("r.jsonl") && error.contains("another user"),
                    "{error}"
                );
            }
            assert_eq!(fs::read_to_string(&victim).ok().as_deref(), content);
            fs::remove_file(&path).unwrap();
        }
    }

    type Change = fn(&Path);

    #[test]
    fn a_change_by_another_process_is_noticed_at_the_next_record_and_at_the_end() {
        let removed = |path: &Path| fs::remove_file(path).unwrap();
        let replaced = |path: &Path| {
            let copy = path.with_extension("copy");
            fs::copy(path, &copy).unwrap();
            fs::rename(copy, path).unwrap();
        };
        let cut = |path: &Path| fs::write(path, "").unwrap();
        let appended = |path: &Path| {
            let mut file = OpenOptions::new().append(true).open(path).unwrap();
            file.write_all(b"mine\n").unwrap();
        };
        let faults: [(Change, &str); 4] = [
            (removed, "was removed or renamed"),
            (replaced, "was replaced by another file"),
            (cut, "to 0 bytes"),
            (appended, "written to by another process"),
        ];
        for (change, expected) in faults {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("results.jsonl");
            let mut writer = RecordWriter::create(&path).unwrap();
            writer.write(&sample(1)).unwrap();
            change(&path);
            let left = fs::read(&path).ok();
            for error in [
                writer.write(&sample(2)).unwrap_err(),
                writer.finish().unwrap_err(),
            ] {
                let text = error.to_string();
                assert!(
                    text.contains(expected) && text.contains("results.jsonl"),
                    "{text}"
                );
            }
            assert_eq!(
                fs::read(&path).ok(),
                left,
                "nothing was written: {expected}"
            );
        }
    }

    #[test]
    fn a_file_belongs_to_one_run_at_a_time() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("results.jsonl");
        let mut writer = RecordWriter::create(&path).unwrap();
        writer.write(&sample(1)).unwrap();
        for refused in [
            RecordWriter::create(&path).map(drop),
            RecordWriter::append(&path).map(drop),
            resume(&path).map(drop),
            check_writable(&path),
        ] {
            let error = refused.unwrap_err();
            assert_eq!(error.exit_code(), 2);
            assert!(error.to_string().contains("another run"), "{error}");
        }
        writer.finish().unwrap();
        check_writable(&path).unwrap();
        assert_eq!(resume(&path).unwrap().0, [sample(1)]);
    }

    #[test]
    fn too_little_space_is_refused() {
        let path = Path::new("results.jsonl");
        assert!(check_room(path, FREE_BYTES_MIN).is_ok());
        let text = check_room(path, FREE_BYTES_MIN - 1)
            .unwrap_err()
            .to_string();
        assert!(
            text.contains("results.jsonl") && text.contains("1048575 bytes free"),
            "{text}"
        );
    }
}
