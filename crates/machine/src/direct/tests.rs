//! Tests of the sources that are trusted for direct I/O.

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

fn refusal_of(answer: DirectIo, on: &FileSystem) -> String {
    let refusal = trusted(answer, on, Path::new("/x/t.dat")).unwrap_err();
    assert!(matches!(refusal, Error::Unavailable { .. }), "{refusal}");
    refusal.to_string()
}

#[test]
fn the_kernel_is_believed_whatever_the_file_system() {
    let alignment = Alignment {
        memory_bytes: 4,
        offset_bytes: 512,
    };
    let answer = DirectIo::Supported(alignment);
    let direct = trusted(answer, &on("0x1234", false), Path::new("/x")).unwrap();
    let record = json!({ "memory_bytes": 4, "offset_bytes": 512, "said_by": "statx" });
    assert_eq!(direct.effective(), record);
    let text = refusal_of(DirectIo::NotSupported, &on("ext4", false));
    assert!(text.contains("/x/t.dat"), "{text}");
    assert!(text.contains("ext4 has none for it"), "{text}");
}

#[test]
fn without_the_kernel_s_word_only_lustre_and_nfs_are_taken() {
    let page_bytes = rustix::param::page_size() as u32;
    for name in ["lustre", "nfs"] {
        let direct = trusted(DirectIo::Unknown, &on(name, false), Path::new("/x")).unwrap();
        assert_eq!(direct.alignment.offset_bytes, page_bytes);
        assert_eq!(direct.alignment.memory_bytes, page_bytes);
        assert_ne!(direct.said_by, "statx");
    }
    for name in ["ext4", "xfs", "fuse", "overlay", "0x1234"] {
        let text = refusal_of(DirectIo::Unknown, &on(name, false));
        assert!(text.contains(name) && text.contains("Linux 6.1"), "{text}");
    }
    let text = refusal_of(DirectIo::Unknown, &on("tmpfs", true));
    assert!(text.contains("in memory"), "{text}");
}
