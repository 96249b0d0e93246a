//! What must hold for every input, shared by the fuzz targets and the plain replay of their corpus.

use counterfoil_core::ids::{
    parse_key_file, write_key_file, Check, DigestChain, Epoch, EventId, IdError, Key, KeyRing, RequestId,
    Scope, Sequence, StreamKind, StreamToken, MAX_ID_BYTES,
};

/// Any bytes are an ID that is written back to them, or a typed error that says where.
/// The same bytes, taken as the parts of an ID, make one that only its own scope verifies.
pub(crate) fn event_id(input: &[u8]) {
    read(input);
    read(&[b"cf1.", input].concat());
    read_key_file(input);
    build(input);
}

fn read(text: &[u8]) {
    match EventId::parse(text) {
        Ok(id) => {
            assert_eq!(id.to_string().as_bytes(), text);
            assert!(text.len() <= MAX_ID_BYTES);
        }
        Err(IdError::Malformed { position, .. }) => {
            assert!(text.starts_with(b"cf1."));
            assert!((4..=text.len()).contains(&position));
        }
        Err(IdError::Version { .. }) => assert!(text.starts_with(b"cf") && !text.starts_with(b"cf1.")),
        Err(IdError::Foreign) => assert!(!text.starts_with(b"cf1.")),
    }
}

fn read_key_file(input: &[u8]) {
    let text = String::from_utf8_lossy(input);
    if let Ok(ring) = parse_key_file(&text) {
        assert_eq!(parse_key_file(&write_key_file(&ring)).as_ref(), Ok(&ring));
    }
}

/// Takes bytes off the front; zeros when there are none left.
struct Source<'a>(&'a [u8]);

impl Source<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        let count = N.min(self.0.len());
        bytes[..count].copy_from_slice(&self.0[..count]);
        self.0 = &self.0[count..];
        bytes
    }

    fn text(&mut self) -> Option<String> {
        let [length] = self.take::<1>();
        let length = usize::from(length);
        if length > 40 {
            return None;
        }
        let (taken, rest) = self.0.split_at(length.min(self.0.len()));
        self.0 = rest;
        Some(String::from_utf8_lossy(taken).into_owned())
    }

    fn scope(&mut self) -> Scope {
        let (tenant, principal, session) = (self.text(), self.text(), self.text());
        Scope::new(tenant.as_deref(), principal.as_deref(), session.as_deref()).unwrap()
    }
}

fn build(input: &[u8]) {
    let mut source = Source(input);
    let ring = KeyRing::new(Key::new(source.take(), 1, None), vec![]).unwrap();
    let (own, other) = (source.scope(), source.scope());
    let (kind, text) = (source.take::<1>()[0], source.text());
    let request_id = match (kind % 4, text.as_deref()) {
        (0, _) => Some(RequestId::Integer(i64::from_be_bytes(source.take()))),
        (1, Some(text)) => Some(RequestId::Text(text)),
        _ => None,
    };
    let kind = if kind % 4 == 3 { StreamKind::Standalone } else { StreamKind::Call };
    let stream =
        StreamToken::mint(kind, request_id, u32::from_be_bytes(source.take()), source.take()).unwrap();
    assert_eq!(stream.request_id(), request_id.filter(RequestId::fits));
    let epoch = Epoch(source.take());
    let mut chain = DigestChain::start(&ring, &own, &stream, &epoch);
    let sequence = Sequence::new(u64::from_be_bytes(source.take()) >> 1).unwrap();
    let digest = chain.append(sequence, b"", source.0);
    let id = EventId { stream, epoch, tag: ring.tag(&own, &stream, &epoch), sequence, digest };
    let text = id.to_string();
    assert_eq!(EventId::parse(text.as_bytes()), Ok(id));
    assert_eq!(ring.check(&own, &id), Check::Verified);
    assert_eq!(ring.check(&other, &id) == Check::Verified, own == other);
    change_one_byte(&ring, &own, &id, text.into_bytes(), source.take());
}

/// A changed byte is refused, unless it is in the sequence or the digest, which are outside the MAC.
fn change_one_byte(ring: &KeyRing, scope: &Scope, id: &EventId, mut text: Vec<u8>, [at, to]: [u8; 2]) {
    let at = usize::from(at) % text.len();
    text[at] = to;
    if let Ok(changed) = EventId::parse(&text) {
        let same = (changed.stream, changed.epoch, changed.tag) == (id.stream, id.epoch, id.tag);
        assert_eq!(ring.check(scope, &changed) == Check::Verified, same);
    }
}
