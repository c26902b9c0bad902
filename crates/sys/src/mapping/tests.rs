use super::*;

fn arena(bytes: usize) -> Arena {
    Arena::allocate(bytes, Pages::Normal, Sharing::Private, None).unwrap()
}

#[test]
fn bytes_go_in_and_come_out() {
    let arena = arena(10_000);
    arena.write(4095, b"hello").unwrap();
    let mut back = [0; 5];
    arena.read(4095, &mut back).unwrap();
    assert_eq!(&back, b"hello");
}

#[test]
fn every_access_outside_and_every_overlap_is_refused() {
    let arena = arena(4096);
    let size = arena.len() as u64;
    assert!(arena.write(size - 1, b"ab").is_err());
    assert!(arena.read(u64::MAX, &mut [0; 2]).is_err());
    assert!(arena.load_byte(size).is_err());
    assert!(arena.store_byte(size, 1).is_err());
    assert!(arena.word(size - 4).is_none() && arena.word(1).is_none());
    let copied = |to, len| arena.copy_to(0, &arena, to, len, Method::Memcpy);
    assert!(copied(size - 4, 8).is_err());
    // A copy must not overlap itself either.
    assert!(copied(7, 8).is_err() && copied(8, 8).is_ok());
}

/// Bytes of two writers mix, and the bytes around them do not change.
#[test]
fn threads_may_write_one_place_at_the_same_time() {
    let [arena, other] = [arena(8192), arena(8192)];
    std::thread::scope(|scope| {
        for byte in [1, 2] {
            let (arena, other) = (&arena, &other);
            scope.spawn(move || {
                let bytes = [byte; 2000];
                for &method in Method::available() {
                    for _ in 0..200 {
                        arena.write(1000, &bytes).unwrap();
                        other.copy_to(0, arena, 1000, 2000, method).unwrap();
                        arena.copy_to(1000, other, 4000, 2000, method).unwrap();
                    }
                }
            });
        }
    });
    let mut all = [0; 8192];
    arena.read(0, &mut all).unwrap();
    assert!(all[1000..3000].iter().all(|byte| *byte <= 2));
    assert!(
        all[..1000]
            .iter()
            .chain(&all[3000..])
            .all(|byte| *byte == 0)
    );
}

#[test]
fn two_mappings_of_one_file_show_the_same_bytes() {
    let first = Arena::allocate(8192, Pages::Normal, Sharing::Shared, None).unwrap();
    let file = first.file().unwrap().try_clone_to_owned().unwrap();
    let second = Arena::attach(file, first.len()).unwrap();
    for len in [1, 7, 8, 9, 4097] {
        let text: Vec<u8> = (0..len).map(|i| (i % 250) as u8 + 1).collect();
        first.write(0, &text).unwrap();
        let other = arena(8192);
        second
            .copy_to_last_byte_last(0, &other, 16, len, Method::Memcpy)
            .unwrap();
        let mut back = vec![0; len as usize];
        other.read(16, &mut back).unwrap();
        assert_eq!(back, text);
    }
}

/// A peer with the file cannot remove pages that others have mapped.
#[test]
fn a_shared_file_keeps_its_length() {
    let arena = Arena::allocate(8192, Pages::Normal, Sharing::Shared, None).unwrap();
    for len in [4096, 16_384] {
        let changed = rustix::fs::ftruncate(arena.file().unwrap(), len);
        assert_eq!(changed, Err(rustix::io::Errno::PERM), "{len}");
    }
}

#[test]
fn absurd_sizes_and_short_files_are_an_error() {
    assert!(Arena::allocate(usize::MAX, Pages::Normal, Sharing::Private, None).is_err());
    let first = Arena::allocate(4096, Pages::Normal, Sharing::Shared, None).unwrap();
    let file = first.file().unwrap().try_clone_to_owned().unwrap();
    assert!(Arena::attach(file, 1 << 20).is_err());
}

#[test]
fn transparent_memory_starts_on_a_large_page_and_counts_only_its_own() {
    let arenas: Vec<Arena> = (0..3)
        .map(|_| Arena::allocate(3 << 20, Pages::Transparent, Sharing::Private, None).unwrap())
        .collect();
    for arena in &arenas {
        assert_eq!(arena.len(), 4 << 20);
        assert!((arena.base.as_ptr() as usize).is_multiple_of(MIB_2));
        // Neighbours that the kernel merged into one mapping would be counted together.
        assert!(arena.transparent_bytes().unwrap() <= 4 << 20);
        arena.store_byte((4 << 20) - 1, 1).unwrap();
    }
}

#[test]
fn small_memory_has_no_large_pages() {
    for sharing in [Sharing::Private, Sharing::Shared] {
        let arena = Arena::allocate(8 << 20, Pages::Small, sharing, None).unwrap();
        assert_eq!(arena.transparent_bytes().unwrap(), 0);
        assert_eq!(arena.pages(), Pages::Small);
    }
}
