//! A headless browser, controlled through Chromium's own protocol over two named pipes.

use std::collections::VecDeque;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A browser that takes longer is killed. All calls that wait for it then fail.
const WATCHDOG: Duration = Duration::from_secs(100);

/// A running browser. Dropping it ends the browser.
pub struct Chromium {
    child: Child,
    orders: File,
    answers: BufReader<File>,
    last: u64,
    /// Received messages that are not replies.
    told: VecDeque<Value>,
    _home: TempDir,
}

/// A page that is open in the browser.
#[derive(Clone)]
pub struct Tab(String);

impl Chromium {
    /// Starts the browser. If it is not installed, prints how to get it and returns `None`.
    pub fn start() -> Option<Self> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        if !std::env::split_paths(&path).any(|folder| folder.join("chromium").is_file()) {
            println!(
                "skip: no chromium here (run: apt-get install chromium): pages are not opened in a browser"
            );
            return None;
        }
        let home = tempfile::tempdir().unwrap();
        let [orders, answers] = ["orders", "answers"].map(|name| home.path().join(name));
        for pipe in [&orders, &answers] {
            mknodat(CWD, pipe, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        }
        let options = "--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run \
                       --disable-background-networking --disable-component-update --remote-debugging-pipe";
        let script = format!(
            "exec chromium {options} --user-data-dir=\"$0/profile\" 3<\"$0/orders\" 4>\"$0/answers\""
        );
        let child = Command::new("sh")
            .arg("-c")
            .arg(script)
            .arg(home.path())
            .env("HOME", home.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .unwrap();
        let group = Pid::from_child(&child);
        std::thread::spawn(move || {
            std::thread::sleep(WATCHDOG);
            let _ = kill_process_group(group, Signal::KILL);
        });
        // The pipes are opened in the same order as in the shell, because opening a pipe waits for its other end.
        let orders = OpenOptions::new().write(true).open(orders).unwrap();
        let answers = BufReader::new(File::open(answers).unwrap());
        Some(Self {
            child,
            orders,
            answers,
            last: 0,
            told: VecDeque::new(),
            _home: home,
        })
    }

    fn receive(&mut self) -> Value {
        let mut message = Vec::new();
        self.answers.read_until(0, &mut message).unwrap();
        assert_eq!(message.pop(), Some(0), "the browser ended");
        serde_json::from_slice(&message).unwrap()
    }

    fn call(&mut self, tab: Option<&Tab>, method: &str, parameters: Value) -> Value {
        self.last += 1;
        let mut order = json!({"id": self.last, "method": method, "params": parameters});
        if let Some(Tab(session)) = tab {
            order["sessionId"] = session.as_str().into();
        }
        let mut bytes = serde_json::to_vec(&order).unwrap();
        bytes.push(0);
        self.orders.write_all(&bytes).unwrap();
        loop {
            let mut message = self.receive();
            if message["id"] == self.last {
                assert!(message.get("error").is_none(), "{method}: {message}");
                return message["result"].take();
            }
            self.told.push_back(message);
        }
    }

    /// Sends a command to a page and returns the result.
    pub fn order(&mut self, tab: &Tab, method: &str, parameters: Value) -> Value {
        self.call(Some(tab), method, parameters)
    }

    /// Opens an address and waits until the page has loaded. The width is in pixels.
    pub fn open(&mut self, address: &str, width: u32, dark: bool, scripts: bool) -> Tab {
        let target = self.call(None, "Target.createTarget", json!({"url": "about:blank"}));
        let target = json!({"targetId": target["targetId"], "flatten": true});
        let session = self.call(None, "Target.attachToTarget", target);
        let tab = Tab(session["sessionId"].as_str().unwrap().to_owned());
        for domain in ["Page", "Runtime", "Log", "Network"] {
            self.order(&tab, &format!("{domain}.enable"), json!({}));
        }
        let scheme = if dark { "dark" } else { "light" };
        let media = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.order(&tab, "Emulation.setEmulatedMedia", media);
        let metrics =
            json!({"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600});
        self.order(&tab, "Emulation.setDeviceMetricsOverride", metrics);
        self.order(
            &tab,
            "Emulation.setScriptExecutionDisabled",
            json!({"value": !scripts}),
        );
        self.told.clear();
        self.order(&tab, "Page.navigate", json!({"url": address}));
        while !self
            .told
            .iter()
            .any(|it| it["method"] == "Page.loadEventFired")
        {
            let message = self.receive();
            self.told.push_back(message);
        }
        tab
    }

    /// Returns the value of an expression in a page. Works even if the page's own scripts are blocked.
    pub fn evaluate(&mut self, tab: &Tab, expression: &str) -> Value {
        let wanted = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let found = self.order(tab, "Runtime.evaluate", wanted);
        assert!(
            found.get("exceptionDetails").is_none(),
            "{expression}: {found}"
        );
        found["result"]["value"].clone()
    }

    /// Returns the console messages since the page was opened.
    pub fn console(&self) -> Vec<String> {
        let methods = [
            "Log.entryAdded",
            "Runtime.consoleAPICalled",
            "Runtime.exceptionThrown",
        ];
        let messages = self
            .told
            .iter()
            .filter(|it| methods.contains(&it["method"].as_str().unwrap_or_default()));
        messages.map(|it| it["params"].to_string()).collect()
    }

    /// Returns the addresses that were requested since the page was opened.
    pub fn requests(&self) -> Vec<String> {
        let sent = self
            .told
            .iter()
            .filter(|it| it["method"] == "Network.requestWillBeSent");
        let addresses = sent.map(|it| it["params"]["request"]["url"].as_str().unwrap().to_owned());
        addresses.collect()
    }
}

impl Drop for Chromium {
    fn drop(&mut self) {
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.wait();
    }
}

/// Returns the URL of a file.
pub fn file(path: &Path) -> String {
    format!("file://{}", path.display())
}
