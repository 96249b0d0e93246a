//! Times the core on event-stream files; prints one JSON object per line.
//!
//!     counterfoil-bench splitter FILE...     events as spans, at 1 B, 1 KiB, 16 KiB and 64 KiB
//!     counterfoil-bench long-line            one line of 1 and of 16 MiB, in small chunks
//!     counterfoil-bench append               an append into a full window, and its parts
//!     counterfoil-bench relay FILE...        the relay step with a reader, in chunks of 16 KiB
//!     counterfoil-bench ids                  event IDs, and the digest beside the same append without it

mod ids;
mod splitter;
mod store;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.split_first() {
        Some((what, files)) if what == "splitter" && !files.is_empty() => splitter::time_files(files),
        Some((what, files)) if what == "relay" && !files.is_empty() => store::time_relay(files),
        Some((what, [])) if what == "append" => store::time_appends(),
        Some((what, [])) if what == "ids" => ids::time_all(),
        Some((what, [])) if what == "long-line" => splitter::time_long_lines(),
        _ => {
            eprintln!("usage: counterfoil-bench splitter FILE... | relay FILE... | append | long-line | ids");
            std::process::exit(2);
        }
    }
}
