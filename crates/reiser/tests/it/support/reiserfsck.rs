//! reiserfsck, which judges images; unit tests include this file too.

use std::path::Path;
use std::process::Command;

/// Panics with what reiserfsck says of an image where it finds anything wrong; `options` come
/// before the image.
pub fn check_with(options: &[&Path], image: &Path) {
    let checked = Command::new("reiserfsck")
        .args(["--check", "-y", "-q"])
        .args(options)
        .arg(image)
        .output()
        .expect("reiserfsck runs");
    let text = String::from_utf8_lossy(&[checked.stdout, checked.stderr].concat()).into_owned();
    assert!(
        checked.status.success() && text.contains("No corruptions"),
        "{text}"
    );
}

/// [`check_with`] without more options.
pub fn reiserfsck(image: &Path) {
    check_with(&[], image);
}
