//! Times the core on a folder of streams; prints one JSON object per line.

fn main() {}
