use super::*;
use crate::path::Answer;

fn chooser(multipath: Multipath) -> (Chooser, Paths) {
    let options = FetchOptions::default();
    let (rtt, window) = (options.rto, options.window);
    let mut paths = Paths::new(&[], window, rtt, true, Time::ZERO);
    let chooser = Chooser::new(multipath, &options, &mut paths, Time::ZERO);
    (chooser, paths)
}

/// A tag with these labels, of one octet each.
fn tag(labels: &[u8]) -> PathTag {
    PathTag::new(labels.to_vec()).expect("a tag")
}

/// Makes a path of this number known and used, as of the time of the latest review.
fn put(chooser: &mut Chooser, paths: &mut Paths, id: u16, labels: &[u8]) {
    let known = chooser.known.entry(tag(labels)).or_default();
    known.path = Some(PathId(id));
    chooser.reviewed.insert(PathId(id), 0);
    let options = FetchOptions::default();
    let law = options.window.law(Time::ZERO);
    let path = PathOptions::tagged(FaceNumber::FIRST, &tag(labels));
    paths.put(Path::new(PathId(id), path, law, options.rto, true));
}

/// So many octets come over a path.
fn deliver(paths: &mut Paths, id: u16, bytes: usize) {
    let answer = Answer {
        now: Time::ZERO,
        segment: 0,
        bytes,
        rtt: None,
        to_latest: true,
        late: None,
        in_flight: true,
        marked: false,
        route: None,
        intermediate: false,
        limit: 1000.0,
    };
    paths.on_answer(PathId(id), &answer);
}

#[test]
fn a_path_with_a_new_link_takes_the_place_of_the_longest_one_that_adds_none() {
    let (mut chooser, mut paths) = chooser(Multipath::default());
    let used = [&[1, 2, 3][..], &[1, 4], &[1, 4, 2, 3], &[1, 4, 3]];
    for (id, labels) in (2..).zip(used) {
        put(&mut chooser, &mut paths, id, labels);
    }
    assert_eq!(
        chooser.dispensable(&tag(&[1, 2, 4])),
        None,
        "it adds no link"
    );
    assert_eq!(chooser.dispensable(&tag(&[1, 9])), Some(PathId(4)));
    for labels in &used[2..] {
        chooser.known.remove(&tag(labels));
    }
    let newcomer = tag(&[1, 9]);
    assert_eq!(chooser.dispensable(&newcomer), None, "each adds a link");
    let newcomer = tag(&[2, 3, 9]);
    assert_eq!(
        chooser.dispensable(&newcomer),
        Some(PathId(2)),
        "the newcomer has links 2 and 3, path 3 link 1"
    );
}

#[test]
fn a_path_that_winds_through_the_network_does_not_drive_out_short_ones() {
    let (mut chooser, mut paths) = chooser(Multipath::default());
    let used = [&[1, 2, 3, 4, 5, 6, 7][..], &[1, 2], &[1, 3], &[1, 4]];
    for (id, labels) in (2..).zip(used) {
        put(&mut chooser, &mut paths, id, labels);
    }
    // Only the long one has the links 5 to 7: it goes when shorter ones have them.
    for (id, labels) in [(6, &[1, 5][..]), (7, &[1, 6])] {
        let newcomer = tag(labels);
        assert_eq!(chooser.dispensable(&newcomer), None, "{newcomer}");
        put(&mut chooser, &mut paths, id, labels);
    }
    assert_eq!(chooser.dispensable(&tag(&[1, 7])), Some(PathId(2)));
}

#[test]
fn the_path_with_the_least_content_leaves_and_no_other_while_that_is_a_newcomer() {
    let multipath = Multipath {
        most: 3,
        ..Multipath::default()
    };
    let (mut chooser, mut paths) = chooser(multipath);
    for id in 2..5u16 {
        put(&mut chooser, &mut paths, id, &[1, id as u8]);
        deliver(&mut paths, id, 1000 * usize::from(id));
    }
    let now = Time::from_secs(10);
    assert_eq!(chooser.exchange(now, &paths), None, "no other is known");
    chooser.known.insert(tag(&[1, 9]), Known::default());
    assert_eq!(
        chooser.exchange(now, &paths),
        Some((PathId(2), tag(&[1, 9])))
    );
    // It came within this interval.
    chooser.reviewed.remove(&PathId(2));
    assert_eq!(chooser.exchange(now, &paths), None);
    deliver(&mut paths, 2, 2000);
    assert_eq!(
        chooser.exchange(now, &paths),
        Some((PathId(3), tag(&[1, 9])))
    );
}

#[test]
fn new_links_come_first_then_what_was_not_used_for_longest_then_the_shortest() {
    let (mut chooser, mut paths) = chooser(Multipath::default());
    put(&mut chooser, &mut paths, 2, &[1, 2]);
    put(&mut chooser, &mut paths, 3, &[1, 3, 4]);
    let free = [&[1, 2, 3, 4][..], &[1, 2, 4], &[1, 3], &[2, 7]].map(tag);
    for (tag, left_at) in free.iter().zip([0, 0, 5, 9]) {
        let known = chooser.known.entry(tag.clone()).or_default();
        known.left_at = Time::from_secs(left_at);
    }
    let mut rest = free.to_vec();
    for expected in [3, 1, 0, 2] {
        let comes = chooser.most_apart(&rest, None);
        assert_eq!(comes.as_ref(), Some(&free[expected]));
        rest.retain(|tag| Some(tag) != comes.as_ref());
    }
    assert_eq!(chooser.most_apart(&rest, None), None);
    // Without the path that leaves, links 3 and 4 are not in use.
    let (long, short) = (free[0].clone(), tag(&[2, 1]));
    chooser.known.insert(short.clone(), Known::default());
    let both = [long.clone(), short.clone()];
    assert_eq!(chooser.most_apart(&both, None), Some(short));
    assert_eq!(chooser.most_apart(&both, Some(PathId(3))), Some(long));
}

#[test]
fn a_failed_path_is_used_again_once_a_later_probe_comes_back_over_it() {
    let (mut chooser, _) = chooser(Multipath::default());
    let at = Time::from_secs;
    let octets = b"\x85\x00\x00\x01";
    let tag = PathTag::new(&octets[..]);
    assert_eq!(chooser.learn(at(1), octets, at(0), None), tag);
    // It is used, and fails at 5 s.
    let known = chooser.known.values_mut().next().unwrap();
    (known.left_at, known.avoided_until) = (at(5), at(15));
    assert_eq!(
        chooser.learn(at(6), octets, at(4), None),
        None,
        "sent before"
    );
    assert_eq!(chooser.unused(at(6)), []);
    assert_eq!(chooser.learn(at(7), octets, at(6), None), tag);
    assert_eq!(chooser.unused(at(7)).len(), 1);
}
