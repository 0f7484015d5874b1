use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;

use super::*;

struct Fixture {
    root: tempfile::TempDir,
}

impl Fixture {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        std::fs::DirBuilder::new()
            .mode(0o700)
            .create(root.path().join("run"))
            .unwrap();
        Self { root }
    }

    fn directory(&self) -> PathBuf {
        self.root.path().join("run")
    }

    fn socket(&self) -> PathBuf {
        self.directory().join("daemon.sock")
    }

    fn victim(&self) -> PathBuf {
        let path = self.root.path().join("victim");
        let mut file = std::fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&path)
            .unwrap();
        file.write_all(b"precious").unwrap();
        path
    }
}

fn content(path: &Path) -> String {
    let mut text = String::new();
    let mut file = std::fs::OpenOptions::new().read(true).open(path).unwrap();
    std::io::Read::read_to_string(&mut file, &mut text).unwrap();
    text
}

fn present(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_ok()
}

fn stale(path: &Path) {
    drop(StdListener::bind(path).unwrap());
    assert!(present(path));
}

#[test]
fn the_socket_is_0600_in_a_0700_directory_and_goes_with_the_daemon() {
    let fixture = Fixture::new();
    let path = fixture.root.path().join("a/b/daemon.sock");
    let socket = Socket::bind(&path).unwrap();
    let mode = |path: &Path| std::fs::symlink_metadata(path).unwrap().mode() & 0o777;
    assert_eq!(mode(&path), 0o600);
    assert_eq!(mode(path.parent().unwrap()), 0o700);
    UnixStream::connect(&path).unwrap();
    drop(socket);
    assert!(!present(&path));
}

#[test]
fn b145_links_to_a_victim_are_refused_and_the_victim_is_unchanged() {
    let fixture = Fixture::new();
    let victim = fixture.victim();
    let lock = fixture.directory().join("daemon.sock.held");
    for planted in [fixture.socket(), lock] {
        std::os::unix::fs::symlink(&victim, &planted).unwrap();
        let error = Socket::bind(&fixture.socket()).unwrap_err();
        assert!(matches!(error, SocketError::InTheWay { .. }), "{error}");
        assert!(
            error.to_string().contains(planted.to_str().unwrap()),
            "{error}"
        );
        assert_eq!(content(&victim), "precious");
        assert!(std::fs::symlink_metadata(&planted).unwrap().is_symlink());
        std::fs::remove_dir_all(fixture.directory()).unwrap();
        std::fs::DirBuilder::new()
            .mode(0o700)
            .create(fixture.directory())
            .unwrap();
    }
}

#[test]
fn b145_a_file_or_directory_in_the_way_is_left_as_it_is() {
    let fixture = Fixture::new();
    let path = fixture.socket();
    std::fs::DirBuilder::new().create(&path).unwrap();
    let error = Socket::bind(&path).unwrap_err();
    assert!(error.to_string().contains("a directory"), "{error}");
    std::fs::remove_dir(&path).unwrap();
    std::fs::rename(fixture.victim(), &path).unwrap();
    let error = Socket::bind(&path).unwrap_err();
    assert!(error.to_string().contains("not a socket"), "{error}");
    assert_eq!(content(&path), "precious");
}

#[test]
fn b145_a_directory_that_others_can_change_is_refused() {
    let fixture = Fixture::new();
    let directory = fixture.directory();
    for mode in [0o755, 0o777, 0o1777, 0o710] {
        std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(mode)).unwrap();
        let error = Socket::bind(&fixture.socket()).unwrap_err();
        assert!(error.to_string().contains("0700"), "{error}");
        assert!(!present(&fixture.socket()));
    }
    let link = fixture.root.path().join("link");
    std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o700)).unwrap();
    std::os::unix::fs::symlink(&directory, &link).unwrap();
    let error = Socket::bind(&link.join("daemon.sock")).unwrap_err();
    assert!(error.to_string().contains("a link"), "{error}");
}

#[test]
fn b145_things_of_another_user_are_refused() {
    if !rustix::process::geteuid().is_root() {
        // Only root can make them; the checks are the same for everybody.
        return;
    }
    let fixture = Fixture::new();
    stale(&fixture.socket());
    std::os::unix::fs::lchown(fixture.socket(), Some(12345), None).unwrap();
    let error = Socket::bind(&fixture.socket()).unwrap_err();
    assert!(error.to_string().contains("another user"), "{error}");
    assert!(present(&fixture.socket()));
    std::os::unix::fs::chown(fixture.directory(), Some(12345), None).unwrap();
    let error = Socket::bind(&fixture.socket()).unwrap_err();
    assert!(error.to_string().contains("12345"), "{error}");
}

#[test]
fn b145_a_stale_socket_is_replaced_and_a_live_one_is_not() {
    let fixture = Fixture::new();
    let path = fixture.socket();
    stale(&path);
    let before = std::fs::symlink_metadata(&path).unwrap().ctime_nsec();
    let socket = Socket::bind(&path).unwrap();
    assert_ne!(
        std::fs::symlink_metadata(&path).unwrap().ctime_nsec(),
        before
    );
    // Another daemon of ours: the lock is held.
    let error = Socket::bind(&path).unwrap_err();
    assert!(
        matches!(error, SocketError::AlreadyRunning { .. }),
        "{error}"
    );
    UnixStream::connect(&path).unwrap();
    drop(socket);
    // Somebody who listens without our lock.
    let other = StdListener::bind(&path).unwrap();
    let error = Socket::bind(&path).unwrap_err();
    assert!(
        matches!(error, SocketError::AlreadyRunning { .. }),
        "{error}"
    );
    drop(other);
    drop(Socket::bind(&path).unwrap());
}

#[test]
fn b145_of_many_that_start_at_once_one_listens() {
    let fixture = Fixture::new();
    let path = fixture.socket();
    stale(&path);
    let barrier = std::sync::Barrier::new(8);
    let sockets: Vec<_> = std::thread::scope(|scope| {
        let bind = || {
            barrier.wait();
            Socket::bind(&path)
        };
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(bind)).collect();
        threads.into_iter().map(|one| one.join().unwrap()).collect()
    });
    assert_eq!(sockets.iter().filter(|socket| socket.is_ok()).count(), 1);
    UnixStream::connect(&path).unwrap();
}

#[test]
fn a_socket_that_was_replaced_meanwhile_is_not_removed() {
    let fixture = Fixture::new();
    let path = fixture.socket();
    let socket = Socket::bind(&path).unwrap();
    let aside = fixture.directory().join("aside");
    std::fs::rename(&path, &aside).unwrap();
    let other = StdListener::bind(&path).unwrap();
    drop(socket);
    assert!(present(&path), "it is another's");
    UnixStream::connect(&path).unwrap();
    drop(other);
}

#[test]
fn a_path_longer_than_a_socket_address_works() {
    let fixture = Fixture::new();
    let path = fixture
        .root
        .path()
        .join("d".repeat(200))
        .join("daemon.sock");
    let socket = Socket::bind(&path).unwrap();
    assert!(present(&path));
    drop(socket);
}
