//! What was taken from a name, or exchanged with another, when its taker died.

use super::*;

type Act = fn(&World);
/// What is done, what is found then: names with contents.
type Case = (&'static str, Act, &'static [(&'static str, &'static str)]);

/// What is there at the next start, once `act` was done after the record.
fn recovered(record: impl FnOnce(&World) -> Record, act: Act) -> Vec<(String, String)> {
    let world = World::new();
    fs::write(world.work("one"), "first").unwrap();
    fs::write(world.work("two"), "second").unwrap();
    let instance = world.instance();
    let slot = instance.record(&record(&world)).unwrap();
    act(&world);
    slot.instance_outlives();
    instance.slots().kept = 1;
    drop(instance);
    drop(world.instance());
    assert_eq!(world.instances(), 0);
    let found = world.names().into_iter();
    found
        .map(|name| (name.clone(), fs::read_to_string(world.work(&name)).unwrap()))
        .collect()
}

fn rename(world: &World, from: &str, to: &str) {
    fs::rename(world.work(from), world.work(to)).unwrap();
}

fn shown(found: &[(String, String)]) -> Vec<(&str, &str)> {
    let found = found.iter();
    found
        .map(|(name, text)| (name.as_str(), text.as_str()))
        .collect()
}

#[test]
fn what_was_taken_aside_to_be_removed_is_removed_and_nothing_else() {
    let cases: [Case; 5] = [
        ("not taken", |_| {}, &[("one", "first"), ("two", "second")]),
        (
            "taken",
            |world| rename(world, "one", "t"),
            &[("two", "second")],
        ),
        (
            "removed",
            |world| fs::remove_file(world.work("one")).unwrap(),
            &[("two", "second")],
        ),
        (
            "another one was taken",
            |world| {
                rename(world, "two", "t");
                fs::remove_file(world.work("one")).unwrap();
            },
            &[("one", "second")],
        ),
        (
            "another one was taken, and a third has the name",
            |world| rename(world, "two", "t"),
            &[("one", "first"), ("t", "second")],
        ),
    ];
    for (what, act, left) in cases {
        let record = |world: &World| {
            Record::Aside(Temporary {
                place: world.location("t"),
                owner: rustix::process::geteuid().as_raw(),
                at: millis_now(),
                target: b"one".to_vec(),
                displaces: Some(Seen::from(&rustix::fs::stat(world.work("one")).unwrap())),
            })
        };
        assert_eq!(shown(&recovered(record, act)), left, "{what}");
    }
}

#[test]
fn of_two_names_that_were_exchanged_the_first_goes_if_both_are_as_we_left_them() {
    fn exchange(world: &World) {
        rename(world, "one", "x");
        rename(world, "two", "one");
        rename(world, "x", "two");
    }
    let cases: [Case; 5] = [
        ("not done", |_| {}, &[("one", "first"), ("two", "second")]),
        ("exchanged", exchange, &[("two", "first")]),
        (
            "done",
            |world| rename(world, "one", "two"),
            &[("two", "first")],
        ),
        (
            "what was displaced is another file",
            |world| {
                fs::write(world.work("x"), "theirs").unwrap();
                rename(world, "x", "two");
                exchange(world);
            },
            &[("one", "theirs"), ("two", "first")],
        ),
        (
            "what was moved is another file",
            |world| {
                fs::write(world.work("x"), "theirs").unwrap();
                rename(world, "x", "one");
                exchange(world);
            },
            &[("one", "second"), ("two", "theirs")],
        ),
    ];
    for (what, act, left) in cases {
        let record = |world: &World| {
            Record::Exchanged(Exchanged {
                from: world.location("one"),
                to: world.location("two"),
                moved: id(&world.work("one")),
                displaces: Seen::from(&rustix::fs::stat(world.work("two")).unwrap()),
            })
        };
        assert_eq!(shown(&recovered(record, act)), left, "{what}");
    }
}
