#!/usr/bin/env bash
# Guess: tokio-postgres documents its URLs as "libpq-style", so `tcp_user_timeout=20000` means 20 s in both.
# Truth: libpq takes milliseconds and tokio-postgres seconds: the same URL means five and a half hours. libpq's name
# `keepalives_count` is refused (it is `keepalives_retries` here), and no variable such as PGHOST or PGSERVICE is read.
# Version and date: tokio-postgres 0.7.18, 2026-11-27; libpq's documentation, section "Parameter Key Words".
# Gristmill: reads URLs by itself, with libpq's units, names, variables and files (docs/fleet.md, and the tests of
# crates/postgres-link/src/settings.rs).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
mkdir src
cat > Cargo.toml <<'TOML'
[package]
name = "finding"
version = "0.0.0"
edition = "2021"
[dependencies]
tokio-postgres = "=0.7.18"
TOML
cat > src/main.rs <<'RUST'
fn main() {
    let config: tokio_postgres::Config = "postgresql://h/d?tcp_user_timeout=20000".parse().unwrap();
    println!("tcp_user_timeout=20000 is {:?}", config.get_tcp_user_timeout().unwrap());
    let count = "postgresql://h/d?keepalives_count=3".parse::<tokio_postgres::Config>();
    println!("keepalives_count is {}", if count.is_ok() { "taken" } else { "refused" });
    let retries = "postgresql://h/d?keepalives_retries=3".parse::<tokio_postgres::Config>();
    println!("keepalives_retries is {}", if retries.is_ok() { "taken" } else { "refused" });
    std::env::set_var("PGHOST", "there");
    let config: tokio_postgres::Config = "postgresql:///d".parse().unwrap();
    println!("PGHOST gives {} hosts", config.get_hosts().len());
}
RUST
seen=$(cargo run --quiet)
echo "$seen"
[ "$seen" = "tcp_user_timeout=20000 is 20000s
keepalives_count is refused
keepalives_retries is taken
PGHOST gives 0 hosts" ]
