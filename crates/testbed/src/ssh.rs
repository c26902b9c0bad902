//! A real sshd in each host, and a client at the switch that knows their keys.
//!
//! All keys are created here and removed with the hosts. The machine's own sshd, its keys and its users' settings are
//! neither used nor changed.

use std::fs::{self, File, Permissions};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::tool::{output, require, tool};
use crate::{Error, Hosts, Result};

/// Path of sshd, which refuses to start without its full path.
const DAEMON: &str = "/usr/sbin/sshd";

/// sshd requires this folder. Usually the system's ssh service creates it.
const EMPTY_FOLDER: &str = "/run/sshd";

/// An sshd usually listens after some milliseconds; the rest is for busy machines.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// Running sshd processes. Dropping this value ends them; open sessions end with the hosts.
#[derive(Debug)]
pub struct Ssh<'a> {
    hosts: &'a Hosts,
    folder: PathBuf,
    daemons: Vec<Child>,
}

impl<'a> Ssh<'a> {
    /// Starts an sshd on port 22 of each host, and waits until all listen.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if OpenSSH is not installed, [`Error::Failed`] if an sshd does not start.
    pub fn start(hosts: &'a Hosts) -> Result<Self> {
        require(&["sshd", "ssh", "ssh-keygen"])?;
        let mut ssh = Self {
            hosts,
            folder: hosts.folder().join("ssh"),
            daemons: Vec::new(),
        };
        ssh.write_files()?;
        for host in 0..hosts.count() {
            ssh.serve(host, 22, ":")?;
        }
        Ok(ssh)
    }

    /// Starts another sshd in a host, after the shell commands in `before`. Mounts made by these commands are visible
    /// only in this sshd's sessions.
    ///
    /// # Errors
    /// [`Error::Failed`] if the sshd does not start.
    pub fn serve(&mut self, host: usize, port: u16, before: &str) -> Result<()> {
        let configuration = self.folder.join(format!("sshd-{host}-{port}"));
        let folder = self.folder.display();
        let text = format!(
            "Port {port}\nListenAddress {}\nHostKey {folder}/host_key\nAuthorizedKeysFile {folder}/authorized\n\
             PidFile none\nPermitRootLogin yes\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nUsePAM no\n\
             StrictModes no\nMaxStartups 1000\nPrintMotd no\n",
            self.hosts.address(host)
        );
        let log = configuration.with_extension("log");
        fs::write(&configuration, text).map_err(|error| failed(&configuration, error))?;
        let file = File::create(&log).map_err(|error| failed(&log, error))?;
        let script = format!("{before}\nexec {DAEMON} -D -e -f \"$0\"");
        let child = self
            .hosts
            .command(host, "sh")
            .args(["-c", &script])
            .arg(&configuration)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(file)
            .spawn()
            .map_err(|error| Error::Failed(format!("cannot start sshd: {error}")))?;
        self.daemons.push(child);
        let since = Instant::now();
        let address = (self.hosts.address(host), port);
        while self
            .hosts
            .within(host, || TcpStream::connect(address).is_err())?
        {
            if since.elapsed() > START_TIMEOUT {
                let said = fs::read_to_string(&log).unwrap_or_default();
                return Err(Error::Failed(format!(
                    "sshd of h{host} does not listen: {}",
                    said.trim()
                )));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Returns the client's configuration file, for `ssh -F`.
    pub fn configuration(&self) -> PathBuf {
        self.folder.join("config")
    }

    /// Returns the file with the hosts' keys.
    pub fn known_hosts(&self) -> PathBuf {
        self.folder.join("known_hosts")
    }

    /// Returns the client program, which runs at the switch: `ssh h0 hostname`.
    pub fn program(&self) -> PathBuf {
        self.hosts.folder().join("bin/ssh")
    }

    fn write_files(&self) -> Result<()> {
        let write = |name: &str, text: String| {
            let path = self.folder.join(name);
            fs::write(&path, text).map_err(|error| failed(&path, error))
        };
        fs::create_dir(&self.folder).map_err(|error| failed(&self.folder, error))?;
        fs::create_dir_all(EMPTY_FOLDER).map_err(|error| failed(Path::new(EMPTY_FOLDER), error))?;
        for name in ["host_key", "key"] {
            let mut keygen = tool("ssh-keygen");
            keygen.args(["-q", "-t", "ed25519", "-N", "", "-C", "testbed", "-f"]);
            output(keygen.arg(self.folder.join(name)))?;
        }
        let public = |name: &str| {
            let path = self.folder.join(name);
            fs::read_to_string(&path).map_err(|error| failed(&path, error))
        };
        write("authorized", public("key.pub")?)?;
        let key = public("host_key.pub")?;
        // OpenSSH puts a host with a port other than 22 in brackets.
        write("known_hosts", format!("h*,[h*]:* {key}"))?;
        let folder = self.folder.display();
        write(
            "config",
            format!(
                "Host *\n  User root\n  IdentityFile {folder}/key\n  IdentitiesOnly yes\n  UserKnownHostsFile \
                 {folder}/known_hosts\n  GlobalKnownHostsFile /dev/null\n"
            ),
        )?;
        let program = self.program();
        // The wrapper removes its own folder from PATH, so that the search finds the real ssh.
        let text = format!(
            "#!/bin/sh\nbin=${{0%/*}}\nPATH=$(printf %s \":$PATH:\" | sed \"s|:$bin:|:|g; s|^:||; s|:$||\") \\\n\
             exec \"{}\" switch ssh -F {folder}/config \"$@\"\n",
            self.hosts.on().display()
        );
        fs::write(&program, text)
            .and_then(|()| fs::set_permissions(&program, Permissions::from_mode(0o755)))
            .map_err(|error| failed(&program, error))
    }
}

fn failed(path: &Path, error: std::io::Error) -> Error {
    Error::Failed(format!("cannot write {}: {error}", path.display()))
}

impl Drop for Ssh<'_> {
    fn drop(&mut self) {
        for daemon in &mut self.daemons {
            // Both calls fail only if the daemon has already ended.
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}
