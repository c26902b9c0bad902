//! Client of PMI-1, the text protocol of MPICH's mpirun (Hydra), Intel MPI's mpirun and `srun --mpi=pmi2`.
//!
//! Each request and each answer is one line of `name=value` words. This file is the client side; `rendezvous` uses it.

use std::fs::File;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::time::Duration;

use rustix::net::sockopt::{Timeout, set_socket_timeout};

/// Limit on the length of an answer.
const LINE_BYTES_MAX: u64 = 64 << 10;
/// Longest value that every server accepts.
pub(crate) const VALUE_BYTES_MAX: usize = 1000;
/// Longest wait for the answer to `finalize`, so that a hanging server cannot keep a finished run alive.
const FAREWELL: Duration = Duration::from_secs(3);

/// This process's registration with the launcher's PMI server. Dropping it sends `finalize`, unless MPI does. A
/// launcher ends the whole job if a process ends without `finalize`.
#[derive(Debug)]
pub(crate) struct Pmi1Client {
    to: File,
    from: BufReader<File>,
    space: String,
    /// Whether the server has answered `init`, so that it expects `finalize`.
    known: bool,
}

impl Pmi1Client {
    /// Connects to the server through an open file descriptor.
    pub(crate) fn start(fd: i32) -> Result<Self, String> {
        let open = || tonnage_sys::descriptor::duplicate(fd).map(File::from);
        let failed = |error| format!("PMI_FD={fd} cannot be used: {error}");
        drop(open().map_err(failed)?);
        // The number may be left over from another launcher, and may now belong to a file of the user. So only a socket
        // is written to.
        if !tonnage_sys::descriptor::is_socket(fd) {
            return Err(format!(
                "PMI_FD={fd} is not a connection to a launcher but another open file: is it left over from a launcher \
                 that has ended?"
            ));
        }
        Self::from_files(open().map_err(failed)?, open().map_err(failed)?)
    }

    fn from_files(to: File, from: File) -> Result<Self, String> {
        let mut client = Self {
            to,
            from: BufReader::new(from),
            space: String::new(),
            known: false,
        };
        client.call("init pmi_version=1 pmi_subversion=1", "response_to_init")?;
        client.known = true;
        let answer = client.call("get_my_kvsname", "my_kvsname")?;
        client.space = reply_value(&answer, "kvsname")
            .ok_or_else(|| format!("PMI gives no name of the job: {}", answer.trim()))?
            .to_owned();
        Ok(client)
    }

    /// Stores a value under a key. Neither may contain white space or "=".
    pub(crate) fn put(&mut self, key: &str, value: &str) -> Result<(), String> {
        let space = &self.space;
        let line = format!("put kvsname={space} key={key} value={value}");
        self.call(&line, "put_result").map(|_| ())
    }

    /// Waits until all processes of the job call this. Values stored before the barrier are visible to all of them
    /// afterwards.
    pub(crate) fn barrier(&mut self) -> Result<(), String> {
        self.call("barrier_in", "barrier_out").map(|_| ())
    }

    /// Returns the value that a process stored under a key before the last barrier.
    pub(crate) fn get(&mut self, key: &str) -> Result<String, String> {
        let line = format!("get kvsname={} key={key}", self.space);
        let answer = self.call(&line, "get_result")?;
        let value = reply_value(&answer, "value").map(str::to_owned);
        value.ok_or_else(|| format!("PMI gives no value of {key}: {}", answer.trim()))
    }

    fn call(&mut self, command: &str, expected: &str) -> Result<String, String> {
        let what = command.split(' ').next().unwrap_or_default();
        self.to
            .write_all(format!("cmd={command}\n").as_bytes())
            .map_err(|error| match error.kind() {
                ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => connection_lost(what),
                _ => format!("PMI's {what} cannot be sent: {error}"),
            })?;
        let mut answer = String::new();
        let read = self
            .from
            .by_ref()
            .take(LINE_BYTES_MAX)
            .read_line(&mut answer);
        match read {
            Err(error) if error.kind() == ErrorKind::ConnectionReset => Err(connection_lost(what)),
            Err(error) => Err(format!("PMI does not answer to {what}: {error}")),
            Ok(_) if !answer.ends_with('\n') => Err(connection_lost(what)),
            Ok(_) => check_reply(&answer, expected).map(|()| answer),
        }
    }
}

impl Drop for Pmi1Client {
    fn drop(&mut self) {
        // An MPI library in this process shares this connection and finalizes it. MPICH 4.0 has already done so at this
        // point. MPICH 5 does so when the process exits, and would fail after another `finalize`.
        if !self.known || tonnage_sys::mpi::has_started() {
            return;
        }
        for direction in [Timeout::Send, Timeout::Recv] {
            if let Err(error) = set_socket_timeout(&self.to, direction, Some(FAREWELL)) {
                log::debug!(
                    "finalize is not sent to PMI, because its answer might never come: {error}"
                );
                return;
            }
        }
        // `finalize` fails only if the launcher is gone.
        if let Err(why) = self.call("finalize", "finalize_ack") {
            log::debug!("PMI did not answer finalize: {why}");
        }
    }
}

/// Suggests why the server closed the connection.
fn connection_lost(what: &str) -> String {
    let likely = match what {
        "init" => {
            "has an earlier program of this process already sent finalize? The launcher serves one program for each \
             process, so start each tonnage by an mpirun of its own"
        }
        _ => "has the launcher ended?",
    };
    format!("PMI ends the connection instead of answering to {what}: {likely}")
}

fn check_reply(answer: &str, expected: &str) -> Result<(), String> {
    let good = reply_value(answer, "cmd") == Some(expected)
        && reply_value(answer, "rc").is_none_or(|code| code == "0");
    if good {
        return Ok(());
    }
    Err(format!(
        "PMI answers {:?} instead of {expected}: does the launcher speak PMI-1?",
        answer.trim()
    ))
}

fn reply_value<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    let mut words = line.split_whitespace();
    words.find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::{AsRawFd, OwnedFd};
    use std::os::unix::net::UnixStream;
    use std::thread::JoinHandle;

    /// A server that sends these answers to any requests. The thread returns the requests.
    fn server(
        answers: &'static [&'static str],
    ) -> (Result<Pmi1Client, String>, JoinHandle<String>) {
        let (here, there) = UnixStream::pair().unwrap();
        let thread = std::thread::spawn(move || {
            let mut reader = BufReader::new(there.try_clone().unwrap());
            let (mut there, mut asked) = (there, String::new());
            for answer in answers {
                if reader.read_line(&mut asked).unwrap() == 0 {
                    break;
                }
                there.write_all(answer.as_bytes()).unwrap();
            }
            asked
        });
        let to = File::from(OwnedFd::from(here));
        let from = to.try_clone().unwrap();
        (Pmi1Client::from_files(to, from), thread)
    }

    #[test]
    fn both_dialects_are_understood() {
        let (client, thread) = server(&[
            "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\n",
            "cmd=my_kvsname kvsname=job_7 rc=0\n",
            "cmd=put_result rc=0 msg=success\n",
            "cmd=barrier_out\n",
            "cmd=get_result rc=0 msg=success value=a:b\n",
            "cmd=finalize_ack rc=0\n",
        ]);
        let mut client = client.unwrap();
        client.put("k", "v").unwrap();
        client.barrier().unwrap();
        assert_eq!(client.get("k").unwrap(), "a:b");
        drop(client);
        assert_eq!(
            thread.join().unwrap(),
            "cmd=init pmi_version=1 pmi_subversion=1\ncmd=get_my_kvsname\ncmd=put kvsname=job_7 key=k value=v\n\
             cmd=barrier_in\ncmd=get kvsname=job_7 key=k\ncmd=finalize\n"
        );
    }

    #[test]
    fn answers_other_than_pmi_are_errors() {
        for answers in [
            &["cmd=response_to_init rc=-1\n"][..],
            &["hello\n"],
            &["cmd=response_to_init"],
            &["\n"],
            &["cmd=response_to_init rc=0\n", "cmd=my_kvsname\n"],
        ] {
            let (client, thread) = server(answers);
            let error = client.unwrap_err();
            assert!(error.contains("PMI"), "{error}");
            thread.join().unwrap();
        }
        let error = Pmi1Client::start(-1).unwrap_err();
        assert!(error.contains("PMI_FD=-1"), "{error}");
    }

    #[test]
    fn a_file_of_the_users_is_not_written_to() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"mine").unwrap();
        let error = Pmi1Client::start(file.as_raw_fd()).unwrap_err();
        assert!(error.contains("another open file"), "{error}");
        assert_eq!(file.metadata().unwrap().len(), 4);
    }

    #[test]
    fn finalize_is_not_sent_without_a_successful_init() {
        let (client, thread) = server(&["hello\n", "cmd=finalize_ack rc=0\n"]);
        client.unwrap_err();
        let asked = thread.join().unwrap();
        assert_eq!(asked, "cmd=init pmi_version=1 pmi_subversion=1\n");
    }

    #[test]
    fn a_finalized_connection_is_explained() {
        let (here, there) = UnixStream::pair().unwrap();
        drop(there);
        let error = Pmi1Client::start(here.as_raw_fd()).unwrap_err();
        assert!(error.contains("an mpirun of its own"), "{error}");
    }

    #[test]
    fn a_hanging_server_does_not_keep_the_run_alive() {
        let (here, there) = UnixStream::pair().unwrap();
        let mut answers = there.try_clone().unwrap();
        answers
            .write_all(b"cmd=response_to_init rc=0\ncmd=my_kvsname kvsname=job_7 rc=0\n")
            .unwrap();
        let client = Pmi1Client::start(here.as_raw_fd()).unwrap();
        let (sender, receiver) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            drop(client);
            sender.send(()).unwrap();
        });
        let ended = receiver.recv_timeout(4 * FAREWELL);
        // Closing the server's end would wake a client that waits without a deadline.
        drop((there, answers));
        thread.join().unwrap();
        assert!(ended.is_ok(), "the client waits forever");
    }
}
