# cargo: a crate without dependencies, made, built and tested in the mount, where cargo and the
# compiler also keep what they keep for later.
export CARGO_HOME=$PLACE/cargo CARGO_NET_OFFLINE=true CARGO_TERM_COLOR=never TMPDIR=$PLACE/tmp
mkdir -p $TMPDIR

sources() {
    cat > small/src/lib.rs << 'END'
/// The greatest number that divides both.
pub fn divisor(one: u64, other: u64) -> u64 {
    if other == 0 { one } else { divisor(other, one % other) }
}

#[cfg(test)]
mod tests {
    #[test]
    fn divides() {
        assert_eq!(super::divisor(12, 18), 6);
    }

    #[test]
    fn writes() {
        let dir = std::env::temp_dir().join("written");
        std::fs::write(&dir, "6").unwrap();
        assert_eq!(std::fs::read_to_string(&dir).unwrap(), "6");
    }
}
END
    cat > small/src/main.rs << 'END'
fn main() {
    let numbers: Vec<u64> = std::env::args().skip(1).map(|arg| arg.parse().unwrap()).collect();
    println!("{}", small::divisor(numbers[0], numbers[1]));
}
END
}

work() {
    # Not by `cargo new`, which may take a directory above for its workspace.
    mkdir -p small/src
    sources
    cd small
    cat > Cargo.toml << 'END'
[package]
name = "small"
version = "0.1.0"
edition = "2021"
[workspace]
END
    long "build" cargo build
    check "its program" same "$(target/debug/small 12 18)" 6
    long "test" cargo test
    check "both tests ran" grep -q "^test result: ok. 2 passed" "$OUTSIDE/log"
    long "build with optimisation" cargo build --release
    check "that program" same "$(target/release/small 91 35)" 7
    fresh
    # Times tell that it has changed.
    check "a change" sed -i 's/println!("{}"/println!("is {}"/' src/main.rs
    long "build of the change" cargo build
    check "the changed program" same "$(target/debug/small 12 18)" "is 6"
    fresh
}

# After another mount there is nothing to build.
again() {
    cd small
    fresh
    check "the program is the same" same "$(target/debug/small 12 18)" "is 6"
    check "clean" cargo clean -q
    check "nothing is left" [ ! -e target ]
}

fresh() {
    long "build of nothing" cargo build -v
    refused "something is compiled" grep "Compiling\|Dirty" "$OUTSIDE/log"
    check "it is fresh" grep -q "Fresh small" "$OUTSIDE/log"
}
