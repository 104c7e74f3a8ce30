//! Links the program's own `clock_gettime`, `epoll_wait` and `getrandom` in place of the functions of the C library.

fn main() {
    let source = "src/virtual_time.c";
    println!("cargo:rerun-if-changed={source}");
    cc::Build::new()
        .file(source)
        .warnings_into_errors(true)
        .link_lib_modifier("+whole-archive")
        .compile("virtual_time");
    // The crate `getrandom` looks up its function by name at run time.
    println!("cargo:rustc-link-arg-bins=-Wl,--export-dynamic-symbol=getrandom");
}
