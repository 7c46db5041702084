// `cargo fetch` wants a library.
