//! Tags of what the engine below is asked for.

use super::ring::RingPlace;

/// Tag of an operation of the engine below: the channel and the place that it is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tag(pub(super) u32);

impl Tag {
    pub(super) fn new(channel: u32, place: RingPlace) -> Self {
        let (kind, index) = match place {
            RingPlace::Leaving(index) => (0, index),
            RingPlace::Arriving(index) => (1, index),
            RingPlace::Note(index) => (2, index),
        };
        Self(channel << 8 | kind << 6 | index)
    }

    pub(super) fn channel(self) -> usize {
        (self.0 >> 8) as usize
    }

    pub(super) fn place(self) -> RingPlace {
        let index = self.0 & 0x3f;
        match self.0 >> 6 & 3 {
            0 => RingPlace::Leaving(index),
            1 => RingPlace::Arriving(index),
            _ => RingPlace::Note(index),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_name_channel_and_place() {
        for channel in [0, 3, 9999] {
            for place in [
                RingPlace::Leaving(7),
                RingPlace::Arriving(15),
                RingPlace::Note(0),
            ] {
                let tag = Tag::new(channel, place);
                assert_eq!((tag.channel(), tag.place()), (channel as usize, place));
            }
        }
    }
}
