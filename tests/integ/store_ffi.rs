// SPDX-License-Identifier: Apache-2.0
// store_ffi.rs - the store's C functions as upstream's Rust crate declares and uses them.  store_ffi MASTER
use std::ffi::{c_char, c_int, c_void, CString};
use std::ptr::null;

#[repr(C)]
struct ReplicateConfig {
    replica_num: usize,
    with_soft_pin: c_int,
    with_hard_pin: c_int,
    preferred_segments: *const *const c_char,
    preferred_segments_count: usize,
}

type Store = *mut c_void;

#[link(name = "mooncake_store")]
extern "C" {
    fn mooncake_store_create() -> Store;
    fn mooncake_store_destroy(s: Store);
    fn mooncake_store_setup(s: Store, host: *const c_char, meta: *const c_char, segment: u64, buffer: u64, protocol: *const c_char,
        device: *const c_char, master: *const c_char) -> c_int;
    fn mooncake_store_put(s: Store, key: *const c_char, value: *const c_void, size: usize, c: *const ReplicateConfig) -> c_int;
    fn mooncake_store_get_into(s: Store, key: *const c_char, buffer: *mut c_void, size: usize) -> i64;
    fn mooncake_store_batch_put_from(s: Store, keys: *const *const c_char, buffers: *const *mut c_void, sizes: *const usize,
        n: usize, c: *const ReplicateConfig, results: *mut c_int) -> c_int;
    fn mooncake_store_batch_is_exist(s: Store, keys: *const *const c_char, n: usize, results: *mut c_int) -> c_int;
    fn mooncake_store_get_hostname(s: Store, out: *mut c_char, len: usize) -> c_int;
    fn mooncake_store_remove_by_regex(s: Store, pattern: *const c_char, force: c_int) -> i64;
}

fn main() {
    let master = CString::new(std::env::args().nth(1).expect("MASTER")).unwrap();
    let (host, meta, tcp) = (c"127.0.0.1".as_ptr(), c"P2PHANDSHAKE".as_ptr(), c"tcp".as_ptr());
    unsafe {
        let s = mooncake_store_create();
        assert!(!s.is_null());
        assert_eq!(mooncake_store_setup(s, host, meta, 64 << 20, 16 << 20, tcp, c"".as_ptr(), master.as_ptr()), 0);
        let mut name = [0 as c_char; 256];
        assert_eq!(mooncake_store_get_hostname(s, name.as_mut_ptr(), name.len()), 0);
        let preferred = [name.as_ptr()];
        let config = ReplicateConfig {
            replica_num: 1, with_soft_pin: 0, with_hard_pin: 1, preferred_segments: preferred.as_ptr(), preferred_segments_count: 1,
        };
        let value = b"from rust";
        assert_eq!(mooncake_store_put(s, c"rust".as_ptr(), value.as_ptr().cast(), value.len(), &config), 0);
        let mut back = vec![0u8; 100];
        assert_eq!(mooncake_store_get_into(s, c"rust".as_ptr(), back.as_mut_ptr().cast(), 100), 9);
        assert_eq!(&back[..9], value);
        assert_eq!(mooncake_store_get_into(s, c"rust".as_ptr(), back.as_mut_ptr().cast(), 8), -600);
        let keys = [c"r1".as_ptr(), c"r2".as_ptr(), c"none".as_ptr()];
        let buffers = [back.as_mut_ptr().cast::<c_void>(); 2];
        let mut results = [7 as c_int; 3];
        assert_eq!(mooncake_store_batch_put_from(s, keys.as_ptr(), buffers.as_ptr(), [100usize, 50].as_ptr(), 2, null(),
            results.as_mut_ptr()), 0);
        assert_eq!(results[..2], [0, 0]);
        assert_eq!(mooncake_store_batch_is_exist(s, keys.as_ptr(), 3, results.as_mut_ptr()), 0);
        assert_eq!(results, [1, 1, 0]);
        assert_eq!(mooncake_store_remove_by_regex(s, c"^r[0-9]$".as_ptr(), 1), 2);
        mooncake_store_destroy(s);
    }
}
