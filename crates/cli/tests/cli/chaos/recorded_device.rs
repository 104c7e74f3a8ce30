//! A block device with a file system. QEMU's storage daemon logs its writes and flushes.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::processes::PATIENCE;

/// The size of the device: enough for a cluster of PostgreSQL with the log of a minute's load.
const DEVICE_BYTES: u64 = 1 << 30;

/// A file system with a log of every write and flush. When it is dropped, it is unmounted, and the log is complete.
pub struct RecordedDevice {
    mount: Option<Mount>,
    device: String,
    daemon_id: String,
}

impl RecordedDevice {
    /// Creates an empty file system in a new log, and mounts it at [`mount_point`].
    pub fn mount(folder: &Path) -> RecordedDevice {
        for (name, length) in [("device", DEVICE_BYTES), ("log", 0), ("export", 0)] {
            let file = File::create(folder.join(name)).expect("a file can be made");
            file.set_len(length).expect("a file can be sparse");
        }
        let path = |name: &str| folder.join(name).display().to_string();
        let file = |node: &str| format!("driver=file,node-name={node},filename={}", path(node));
        let export = format!(
            "fuse,id=export,node-name=logged,mountpoint={},writable=on",
            path("export")
        );
        run(Command::new("qemu-storage-daemon")
            .args(["--blockdev", &file("device"), "--blockdev", &file("log")])
            .args([
                "--blockdev",
                "driver=blklogwrites,node-name=logged,file=device,log=log",
            ])
            .args(["--export", &export, "--daemonize", "--pidfile", &path("pid")]));
        let daemon_id = std::fs::read_to_string(path("pid")).expect("the daemon has a number");
        let device = run(Command::new("losetup").args(["--find", "--show", &path("export")]));
        run(Command::new("mkfs.ext4").args(["-q", &device]));
        RecordedDevice {
            mount: Some(Mount::new(folder, &[&device])),
            device,
            daemon_id: daemon_id.trim().to_owned(),
        }
    }
}

impl Drop for RecordedDevice {
    fn drop(&mut self) {
        drop(self.mount.take());
        run(Command::new("losetup").args(["--detach", &self.device]));
        run(Command::new("kill").arg(&self.daemon_id));
        let begun = Instant::now();
        while Path::new("/proc").join(&self.daemon_id).exists() {
            assert!(begun.elapsed() < PATIENCE, "the storage daemon does not end");
            std::thread::park_timeout(Duration::from_millis(5));
        }
    }
}

/// A mounted file system. It is unmounted when it is dropped.
pub struct Mount(PathBuf);

impl Mount {
    /// Mounts an image like a machine that starts again.
    pub fn of_image(folder: &Path, image: &Path) -> Mount {
        Mount::new(folder, &["-o", "loop", &image.display().to_string()])
    }

    fn new(folder: &Path, arguments: &[&str]) -> Mount {
        let path = mount_point(folder);
        std::fs::create_dir_all(&path).expect("a folder can be made");
        run(Command::new("mount").args(arguments).arg(&path));
        Mount(path)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        run(Command::new("umount").arg(&self.0));
    }
}

/// The place where file systems are mounted.
pub fn mount_point(folder: &Path) -> PathBuf {
    folder.join("mounted")
}

/// Runs a program, which must succeed. Returns its output.
pub fn run(command: &mut Command) -> String {
    let ended = command.stdin(Stdio::null()).output();
    let ended = ended.unwrap_or_else(|error| {
        panic!(
            "{command:?}: {error}. Install what is needed: apt-get install qemu-system-common e2fsprogs mount"
        )
    });
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{command:?}: {}: {said}", ended.status);
    String::from_utf8_lossy(&ended.stdout).trim().to_owned()
}
