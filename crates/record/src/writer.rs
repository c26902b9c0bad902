//! Writing records: one JSON line each, in the file as soon as its point has ended.
//!
//! A file of records is made to survive an interrupted run: a line is written with one call, and a line that did not
//! fit is taken back or, where that cannot be done, is the file's last and only broken one. A file that somebody else
//! removes or changes is noticed at the next record, or at the end, and its name may be asked for in between
//! ([`RecordPlace`]). A file belongs to one run at a time: it is locked while open. Reading is in [`super::read`].

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{
    Access, FlockOperation, OFlags, access, fcntl_getfl, fcntl_setfl, flock, statvfs,
};
use rustix::io::Errno;

use super::links::without_links;
use super::place::became;
use super::{Record, RecordPlace, checksum};
use tonnage_units::{Error, Result};

use super::read::{ReadOutcome, missing, name_too_long, read_records};

/// A record takes some kilobytes: with less room than this a sweep would not get far.
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
        /// The name that it was opened by, which must go on meaning it.
        path: PathBuf,
        /// End of the last whole line.
        good_bytes: u64,
        /// True when a broken line stands behind `good_bytes`, which has to go first.
        broken: bool,
    },
    /// A pipe, a terminal, memory: what was written cannot be taken back.
    Stream(Box<dyn Write + Send>),
}

impl RecordWriter {
    /// Starts a file, emptying one that is there.
    ///
    /// # Errors
    /// [`Error::Io`] with the path when it cannot be created; [`Error::Usage`] when another run has it, or it is a FIFO
    /// that nobody reads.
    pub fn create(path: &Path) -> Result<Self> {
        let file = open(path, true)?;
        if is_regular(&file) {
            file.set_len(0).map_err(|error| cannot_write(path, error))?;
        }
        Self::over(path, file)
    }

    /// Goes on with a file, or starts it.
    ///
    /// # Errors
    /// [`Error::Io`] with the path when it cannot be opened; [`Error::Usage`] when its last line is broken, which
    /// [`resume`] repairs, when another run has it, or it is a FIFO that nobody reads.
    pub fn append(path: &Path) -> Result<Self> {
        let file = open(path, true)?;
        if is_regular(&file) && !ends_with_newline(path, &file)? {
            return Err(Error::Usage(format!(
                "{} ends in the middle of a line: name another file, or take up the interrupted run with --resume, \
                 which drops that line",
                path.display()
            )));
        }
        Self::over(path, file)
    }

    /// Writes to something that is no file; `name` is what error messages call it.
    pub fn to(sink: impl Write + Send + 'static, name: impl Into<String>) -> Self {
        Self {
            sink: Sink::Stream(Box::new(sink)),
            name: name.into(),
        }
    }

    fn over(path: &Path, mut file: File) -> Result<Self> {
        if !is_regular(&file) {
            return Ok(Self::to(file, path.display().to_string()));
        }
        let good_bytes = file
            .seek(SeekFrom::End(0))
            .map_err(|error| cannot_write(path, error))?;
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

    /// Writes one record as one line, which has left this process when the call returns.
    ///
    /// # Errors
    /// [`Error::Io`] with the path and what to do: the disk is full, the pipe closed, … The writer can be used again:
    /// a file's earlier lines stay whole, and a broken one is removed before the next. [`Error::Failed`] when somebody
    /// else has removed, replaced or changed the file, to which nothing more is written then.
    pub fn write(&mut self, record: &Record) -> Result<()> {
        let text = checksum::line(record)? + "\n";
        self.check_untouched()?;
        self.write_line(text.as_bytes())
            .map_err(|error| self.failed(error))
    }

    /// The place of the file; a pipe has none.
    pub fn place(&self) -> Option<RecordPlace> {
        match &self.sink {
            Sink::File { file, path, .. } => RecordPlace::of(path, file),
            Sink::Stream(_) => None,
        }
    }

    /// Says when records would go where nobody finds them, or stand behind bytes of somebody else. The system reports
    /// neither: a removed file can be written as long as it is open, and appending to a changed one works.
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
        let became = became(path, (opened.dev(), opened.ino()));
        if let Some(what) = became.map_err(|error| self.failed(error))? {
            return lost(what.to_owned());
        }
        match opened.len() {
            bytes if bytes < *good_bytes => {
                lost(format!("was cut from {good_bytes} to {bytes} bytes"))
            }
            bytes if bytes > *good_bytes && !broken => {
                lost("was written to by somebody else".to_owned())
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
                    // Taking the fragment back needs no room, so it works on a full disk too.
                    *broken = file.set_len(*good_bytes).is_err();
                    return Err(error);
                }
                *good_bytes += line.len() as u64;
                Ok(())
            }
        }
    }

    /// Ends the file. A regular file is on stable storage afterwards: network file systems report a full disk only
    /// here.
    ///
    /// # Errors
    /// [`Error::Io`] when what was written cannot be stored; [`Error::Failed`] when somebody else has removed, replaced
    /// or changed the file.
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
                " (earlier records are kept; make room and take the run up again with --resume)"
            }
            io::ErrorKind::FileTooLarge => {
                " (earlier records are kept; raise the limit on the size of files, which ulimit -f shows, and take the run \
                 up again with --resume)"
            }
            io::ErrorKind::BrokenPipe => " (whoever read it has gone)",
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

/// Takes up an interrupted file: returns its whole records and a writer behind them. A broken last line is dropped.
///
/// # Errors
/// As [`read_records`] and [`RecordWriter::append`] do.
pub fn resume(path: &Path) -> Result<(Vec<Record>, RecordWriter)> {
    // Before it is read, so that no other run writes behind what was read.
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
            .map_err(|error| cannot_write(path, error))?;
    }
    if !ends_with_newline(path, &file)? {
        file.write_all(b"\n")
            .map_err(|error| cannot_write(path, error))?;
    }
    Ok((records, RecordWriter::over(path, file)?))
}

/// Says before measuring whether a results file could be written: the directory is there, the name is not a
/// directory's, both can be written, no other run has the file, and the file system has at least 1 MiB free. Changes
/// nothing.
///
/// # Errors
/// [`Error::Usage`] when another name is needed, [`Error::Io`] when the system refuses this one.
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
            access(path, Access::WRITE_OK).map_err(|error| cannot_write(path, error))?;
            // Opening a FIFO would wait for its other end. One that may not be read is looked at when it is opened.
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
                .map_err(|error| cannot_write(path, error))?;
        }
        Err(error) if error.kind() == io::ErrorKind::InvalidFilename => {
            return Err(name_too_long(path));
        }
        Err(error) => return Err(cannot_write(path, error)),
    }
    let room = statvfs(&directory).map_err(|error| cannot_write(path, error))?;
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

/// The directory that holds, or would hold, the file.
fn directory_of(path: &Path) -> Result<PathBuf> {
    if path.file_name().is_none() && !path.is_dir() {
        return Err(Error::Usage(format!(
            "{:?} is no file name",
            path.display()
        )));
    }
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    Ok(parent.unwrap_or(Path::new(".")).to_owned())
}

/// Opens a file for appending, and keeps other runs from it.
fn open(path: &Path, create: bool) -> Result<File> {
    // Another user, where one may write in the directory, may have put a link there, or put one there now.
    let end = &without_links(path).map_err(|error| cannot_write(path, error))?;
    let nofollow = match end.starts_with("/proc") {
        true => OFlags::empty(),
        false => OFlags::NOFOLLOW,
    };
    let is_fifo = fs::metadata(end).is_ok_and(|found| found.file_type().is_fifo());
    let with = |read: bool, new: bool| {
        let mut flags = nofollow;
        if is_fifo {
            // It would wait for a reader otherwise, for ever and without a word.
            flags |= OFlags::NONBLOCK;
        }
        OpenOptions::new()
            .read(read && !is_fifo)
            .append(true)
            .create_new(new)
            .custom_flags(flags.bits().cast_signed())
            .open(end)
    };
    // Its last byte is read, where it may be.
    let there = with(true, false).or_else(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => with(false, false),
        io::ErrorKind::NotFound if create => with(true, true),
        _ => Err(error),
    });
    let file = there.map_err(|error| {
        if error.raw_os_error() == Some(Errno::NXIO.raw_os_error()) {
            return Error::Usage(format!(
                "{} is a FIFO that nobody reads: start its reader first",
                path.display()
            ));
        }
        match error.kind() {
            io::ErrorKind::NotFound if !create => missing(path),
            _ => cannot_write(path, error),
        }
    })?;
    if is_fifo {
        let blocking =
            fcntl_getfl(&file).and_then(|flags| fcntl_setfl(&file, flags - OFlags::NONBLOCK));
        blocking.map_err(|error| cannot_write(path, error))?;
    }
    if is_regular(&file) {
        lock(&file, path, FlockOperation::NonBlockingLockExclusive)?;
    }
    Ok(file)
}

/// Two runs that write one file would interleave their records, and each would take the other's for its own.
fn lock(file: &File, path: &Path, how: FlockOperation) -> Result<()> {
    match flock(file, how) {
        Err(Errno::WOULDBLOCK) => Err(Error::Usage(format!(
            "another run is writing its results to {}: name another file, or wait until it has ended",
            path.display()
        ))),
        // Some network file systems have no locks. There another run is noticed at the next record, by the file's size.
        Ok(()) | Err(_) => Ok(()),
    }
}

fn cannot_write(path: &Path, error: impl Into<io::Error>) -> Error {
    let what = format!(
        "cannot write results to {} (name another file with -o)",
        path.display()
    );
    Error::io(what, error)
}

fn is_regular(file: &File) -> bool {
    file.metadata().is_ok_and(|found| found.is_file())
}

/// True for an empty file too.
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
    fn a_fragment_that_could_not_be_taken_back_goes_before_the_next_line() {
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

    /// Neither what it points to is written, nor anything made there.
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
    fn a_file_that_somebody_changes_is_noticed_at_the_next_record_and_at_the_end() {
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
            (appended, "written to by somebody else"),
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
    fn too_little_room_is_said() {
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
