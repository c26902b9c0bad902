//! Sizes, rates and times as people write them, and as tables print them.
