//! Any words are a command line of IOR or are refused. The sizes of an accepted command line must fit each other.
//!
//! Words are separated by line ends, so that the fuzzer also tries empty words and blanks.
use tonnage_ior::options::check::check;
use tonnage_ior::options::words::{OwnOption, read};

pub fn try_input(input: &[u8]) {
    let text = crate::text(input);
    let words: Vec<String> = text.split('\n').map(str::to_owned).collect();
    let own = [OwnOption {
        name: "ranks".to_owned(),
        value: true,
    }];
    let Ok(divided) = read(&words, &own) else {
        return;
    };
    assert!(divided.help || divided.own.len() <= words.len());
    if check(&divided.ior).is_ok() {
        let options = divided.ior;
        assert!(options.transfer_bytes > 0 && options.segments > 0);
        assert_eq!(options.block_bytes % options.transfer_bytes, 0);
        assert!(options.writes() || options.reads());
    }
}
