//! Who vouches for direct transfers, and what is said when the system refuses.

use super::*;

fn on(name: &str, memory: bool) -> FileSystem {
    FileSystem {
        name: name.into(),
        device: (0, 1),
        mount_id: None,
        network: false,
        memory,
    }
}

fn refused(said: DirectIo, on: &FileSystem) -> String {
    let refusal = vouched(said, on, Path::new("/x/t.dat")).unwrap_err();
    assert!(matches!(refusal, Error::Unavailable { .. }), "{refusal}");
    refusal.to_string()
}

#[test]
fn the_kernel_is_believed_whatever_the_file_system() {
    let alignment = Alignment {
        memory_bytes: 4,
        offset_bytes: 512,
    };
    let said = DirectIo::Supported(alignment);
    let direct = vouched(said, &on("0x1234", false), Path::new("/x")).unwrap();
    assert_eq!(
        direct.effective(),
        json!({ "memory_bytes": 4, "offset_bytes": 512, "said_by": "statx" })
    );
    let text = refused(DirectIo::NotSupported, &on("ext4", false));
    assert!(
        text.contains("/x/t.dat") && text.contains("ext4 has none for it"),
        "{text}"
    );
}

#[test]
fn without_the_kernel_s_word_only_lustre_and_nfs_are_taken() {
    let page_bytes = rustix::param::page_size() as u32;
    for name in ["lustre", "nfs"] {
        let direct = vouched(DirectIo::NotSaid, &on(name, false), Path::new("/x")).unwrap();
        assert_eq!(direct.alignment.offset_bytes, page_bytes);
        assert_eq!(direct.alignment.memory_bytes, page_bytes);
        assert_ne!(direct.said_by, "statx");
    }
    for name in ["ext4", "xfs", "fuse", "overlay", "0x1234"] {
        let text = refused(DirectIo::NotSaid, &on(name, false));
        assert!(text.contains(name) && text.contains("Linux 6.1"), "{text}");
    }
    let text = refused(DirectIo::NotSaid, &on("tmpfs", true));
    assert!(text.contains("in memory"), "{text}");
}

#[test]
fn a_full_disk_says_where_and_what_to_do() {
    let file = HostFile {
        file: File::open("/dev/null").unwrap(),
        path: "/x/t.dat".into(),
        direct: None,
    };
    let text = |number| {
        let error = io::Error::from_raw_os_error(number);
        file.failed(true, 4096, 512, error).to_string()
    };
    for (number, how) in [
        (ENOSPC, "Free some space"),
        (EDQUOT, "of your space"),
        (EFBIG, "ulimit -f"),
    ] {
        let text = text(number);
        assert!(
            text.starts_with("cannot write 512 bytes at offset 4096 of /x/t.dat: "),
            "{text}"
        );
        assert!(text.contains(how), "{text}");
    }
    assert!(text(5).contains("os error 5"));
}
