//! Messages for errors of the system.

use super::*;

#[test]
fn a_full_disk_is_reported_with_place_and_advice() {
    let file = HostFile {
        file: File::open("/dev/null").unwrap(),
        path: "/x/t.dat".into(),
        direct: None,
        access_time: true,
    };
    let text = |number| {
        let error = io::Error::from_raw_os_error(number);
        file.failed(true, 4096, 512, error).to_string()
    };
    for (number, how) in [
        (ENOSPC, "Free some space"),
        (EDQUOT, "in your quota"),
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
