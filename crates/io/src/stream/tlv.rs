//! Type-length-value blocks of NDN, as far as a stream needs them to find the end of a block.

use super::BlockTypes;

/// The reason why a stream of blocks is abandoned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BadType {
    /// A type number that no block can have.
    Impossible(u64),
    /// A type number that the stream does not carry.
    Foreign(u64),
}

/// Reads a number of variable size: one octet below 253, else a mark and 2, 4 or 8 octets. Returns
/// it with its size in octets.
fn var_number(bytes: &[u8]) -> Option<(u64, usize)> {
    let (first, rest) = bytes.split_first()?;
    match first {
        253 => rest
            .first_chunk()
            .map(|octets| (u16::from_be_bytes(*octets).into(), 3)),
        254 => rest
            .first_chunk()
            .map(|octets| (u32::from_be_bytes(*octets).into(), 5)),
        255 => rest
            .first_chunk()
            .map(|octets| (u64::from_be_bytes(*octets), 9)),
        small => Some(((*small).into(), 1)),
    }
}

/// Returns the size of the first block in `bytes`, type and length included, or `None` if more
/// bytes are needed. Checks the type as soon as it is complete.
pub(super) fn block_size(bytes: &[u8], carried: BlockTypes) -> Result<Option<u64>, BadType> {
    let Some((kind, kind_size)) = var_number(bytes) else {
        return Ok(None);
    };
    if kind == 0 || kind > u64::from(u32::MAX) {
        return Err(BadType::Impossible(kind));
    }
    if !carried.contain(kind) {
        return Err(BadType::Foreign(kind));
    }
    let length = bytes.get(kind_size..).and_then(var_number);
    Ok(length.map(|(length, length_size)| length.saturating_add((kind_size + length_size) as u64)))
}

/// Counts the blocks in `bytes`. A malformed remainder counts as one.
pub(super) fn count_blocks(mut bytes: &[u8]) -> u64 {
    let mut count = 0;
    while !bytes.is_empty() {
        count += 1;
        let size = block_size(bytes, BlockTypes::Any)
            .ok()
            .flatten()
            .and_then(|size| usize::try_from(size).ok());
        bytes = size.and_then(|size| bytes.get(size..)).unwrap_or_default();
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_and_lengths_of_all_forms_are_read_whether_shortest_or_not() {
        let forms = |number: u64| {
            let mut forms: Vec<Vec<u8>> = vec![[&[255][..], &number.to_be_bytes()].concat()];
            forms.extend(
                u32::try_from(number)
                    .ok()
                    .map(|n| [&[254][..], &n.to_be_bytes()].concat()),
            );
            forms.extend(
                u16::try_from(number)
                    .ok()
                    .map(|n| [&[253][..], &n.to_be_bytes()].concat()),
            );
            forms.extend((number < 253).then(|| vec![number as u8]));
            forms
        };
        for kind in [1, 252, 253, 0xffff, 0x1_0000, 0xffff_ffff] {
            for length in [0, 1, 252, 253, 0xffff, 0x1_0000, 0xffff_ffff, 0x1_0000_0000] {
                for (kind_form, length_form) in forms(kind)
                    .iter()
                    .flat_map(|k| forms(length).into_iter().map(move |l| (k.clone(), l)))
                {
                    let head = [kind_form, length_form].concat();
                    assert_eq!(
                        block_size(&head, BlockTypes::Any),
                        Ok(Some(head.len() as u64 + length)),
                        "{head:?}"
                    );
                    for cut in 0..head.len() {
                        let cut_head = block_size(&head[..cut], BlockTypes::Any);
                        assert_eq!(cut_head, Ok(None), "{head:?} cut to {cut}");
                    }
                }
            }
        }
    }

    #[test]
    fn types_outside_one_to_four_octets_are_refused() {
        for (bytes, kind) in [
            (&[0u8, 0][..], 0),
            (&[253, 0, 0], 0),
            (&[255, 0, 0, 0, 1, 0, 0, 0, 0, 9], 0x1_0000_0000),
        ] {
            let refused = Err(BadType::Impossible(kind));
            assert_eq!(block_size(bytes, BlockTypes::Any), refused);
        }
    }

    #[test]
    fn a_type_that_is_not_carried_is_refused_before_its_length_has_come() {
        let carried = BlockTypes::Only(&[5, 0x100]);
        assert_eq!(block_size(&[5], carried), Ok(None));
        assert_eq!(block_size(&[5, 1], carried), Ok(Some(3)));
        assert_eq!(block_size(&[253, 1, 0, 2], carried), Ok(Some(6)));
        assert_eq!(block_size(b"P", carried), Err(BadType::Foreign(0x50)));
        assert_eq!(
            block_size(&[253, 1, 1], carried),
            Err(BadType::Foreign(0x101))
        );
        assert_eq!(block_size(&[0], carried), Err(BadType::Impossible(0)));
    }

    #[test]
    fn the_largest_length_does_not_overflow() {
        assert_eq!(
            block_size(
                &[5, 255, 255, 255, 255, 255, 255, 255, 255, 255],
                BlockTypes::Any
            ),
            Ok(Some(u64::MAX))
        );
    }

    #[test]
    fn blocks_are_counted_and_rubbish_counts_as_one() {
        assert_eq!(count_blocks(&[5, 1, 7, 6, 0, 6, 2, 1, 1]), 3);
        assert_eq!(count_blocks(&[5, 200, 1]), 1);
        assert_eq!(count_blocks(&[0, 0, 1]), 1);
        assert_eq!(count_blocks(&[]), 0);
    }
}
