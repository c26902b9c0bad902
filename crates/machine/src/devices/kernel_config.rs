//! Build options of the running kernel, if its configuration can be read.

use std::fs::File;
use std::io::Read;

use flate2::read::GzDecoder;

use super::super::kernel_files::Tree;

/// Limit on the size of the configuration file. The files of common distributions have about 300 KB.
const TEXT_BYTES_MAX: u64 = 4 << 20;

/// A kernel configuration.
pub(super) struct KernelConfig {
    text: String,
    /// The file that it was read from.
    pub(super) file: String,
}

impl KernelConfig {
    /// Reads the configuration of the running kernel. `None` if neither the kernel nor its package provides it, as in
    /// many containers.
    pub(super) fn read(tree: &Tree) -> Option<Self> {
        const OF_KERNEL: &str = "proc/config.gz";
        let unpacked = File::open(tree.path(OF_KERNEL)).ok().and_then(|packed| {
            let mut text = String::new();
            let mut text_of = GzDecoder::new(packed).take(TEXT_BYTES_MAX);
            text_of.read_to_string(&mut text).ok()?;
            Some((text, OF_KERNEL.to_owned()))
        });
        let of_package = || {
            let release = tree.text("proc/sys/kernel/osrelease")?;
            let boot = format!("boot/config-{release}");
            let files = [boot, format!("lib/modules/{release}/config")];
            files
                .into_iter()
                .find_map(|file| Some((tree.text(&file)?, file)))
        };
        let (text, file) = unpacked.or_else(of_package)?;
        let file = format!("/{file}");
        Some(Self { text, file })
    }

    /// Returns whether an option is set; `None` if the kernel does not have it, or other options exclude it.
    pub(super) fn option(&self, name: &str) -> Option<bool> {
        self.text.lines().find_map(|line| {
            let rest = line.strip_prefix(name);
            let value = rest.and_then(|rest| rest.strip_prefix('='));
            if let Some(value) = value {
                return Some(["y", "m"].contains(&value.trim()));
            }
            let unset = line.strip_prefix("# ")?.strip_prefix(name)?;
            (unset.trim() == "is not set").then_some(false)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::super::super::kernel_files::invented::Machine;
    use super::*;

    const TEXT: &str =
        "CONFIG_PCI_P2PDMA=y\n# CONFIG_DMABUF_MOVE_NOTIFY is not set\nCONFIG_DRM_AMDGPU=m\n";

    #[test]
    fn options_are_read_from_whichever_file_there_is() {
        let machine = Machine::new();
        assert!(KernelConfig::read(&machine.tree()).is_none());
        machine.file("proc/sys/kernel/osrelease", "6.8.0-1");
        machine.file("lib/modules/6.8.0-1/config", TEXT);
        let found = |machine: &Machine| KernelConfig::read(&machine.tree()).unwrap();
        assert_eq!(found(&machine).file, "/lib/modules/6.8.0-1/config");
        machine.file("boot/config-6.8.0-1", TEXT);
        assert_eq!(found(&machine).file, "/boot/config-6.8.0-1");
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        packed.write_all(TEXT.as_bytes()).unwrap();
        let packed = packed.finish().unwrap();
        std::fs::write(machine.tree().path("proc/config.gz"), packed).unwrap();
        let config = found(&machine);
        assert_eq!(config.file, "/proc/config.gz");
        let of = |name| config.option(name);
        assert_eq!(of("CONFIG_PCI_P2PDMA"), Some(true));
        assert_eq!(of("CONFIG_DRM_AMDGPU"), Some(true));
        assert_eq!(of("CONFIG_DMABUF_MOVE_NOTIFY"), Some(false));
        // A name does not match an option that merely begins with it.
        assert_eq!(of("CONFIG_DMABUF_MOVE"), None);
        assert_eq!(of("CONFIG_HSA_AMD_P2P"), None);
    }

    #[test]
    fn a_file_that_is_not_packed_is_none() {
        let machine = Machine::new();
        machine.file("proc/config.gz", "CONFIG_PCI_P2PDMA=y");
        assert!(KernelConfig::read(&machine.tree()).is_none());
    }
}
