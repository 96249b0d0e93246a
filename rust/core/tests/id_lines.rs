//! The ids of a stream that is passed on are its own, or nothing passes.
#![allow(clippy::unwrap_used)]

use counterfoil_core::id_lines::ids_agree;

const PREFIX: &[u8] = b"\nid: cf1.s.";

fn agree(text: &[u8]) -> bool {
    ids_agree(text, text, PREFIX)
}

#[test]
fn ids_of_the_stream_pass_and_so_do_lines_that_are_no_ids() {
    assert!(agree(b""));
    assert!(agree(
        b"\n: comment\n\nid: cf1.s.e.t.1.d\ndata: {\"id\": 7}\ndata: id: 7\n\nid: cf1.s.e.t.2.d\nretry: 5\n"
    ));
    assert!(agree(b"\ni\n\n\n i: \nid: cf1.s."));
}

#[test]
fn any_other_id_is_refused_wherever_it_stands() {
    for other in ["id: cf1.t.e.t.1.d", "id: 7", "id:7", "id", "id: cf1.s", "identity: x", "id:cf1.s.e.t.1.d"]
    {
        for count in [0, 1, 50] {
            let mut text = b"\nid: cf1.s.e.t.1.d\ndata: {}\n".repeat(count);
            text.extend_from_slice(format!("\n{other}").as_bytes());
            assert!(!agree(&text), "{other}");
            text.extend_from_slice(b"\nid: cf1.s.e.t.2.d\n");
            assert!(!agree(&text), "{other}");
        }
    }
}

#[test]
fn another_end_of_a_line_is_refused_behind_the_whole_lines_too() {
    for bad in [b'\r', b'\0'] {
        let mut text = b"\nid: cf1.s.e.t.1.d\ndata: half a l".to_vec();
        assert!(ids_agree(&text, text.get(..18).unwrap(), PREFIX));
        text.push(bad);
        assert!(!ids_agree(&text, text.get(..18).unwrap(), PREFIX));
    }
}
