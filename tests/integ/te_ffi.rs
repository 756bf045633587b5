// SPDX-License-Identifier: Apache-2.0
// te_ffi.rs - the C functions as upstream's Rust crate declares and uses them: structs by repr(C), a notification
// passed by value, room for 32 devices.
use std::ffi::{c_char, c_int, c_void, CStr, CString};

#[repr(C)]
struct TransferRequest {
    opcode: c_int,
    source: *mut c_void,
    target_id: i32,
    target_offset: u64,
    length: u64,
}
#[repr(C)]
struct TransferStatus {
    status: c_int,
    transferred_bytes: u64,
}
#[repr(C)]
struct NotifyMsg {
    name: *mut c_char,
    msg: *mut c_char,
}
#[repr(C)]
struct BufferEntry {
    addr: *mut c_void,
    length: usize,
}
#[repr(C)]
#[derive(Clone, Copy)]
struct NicLoadStat {
    device_name: [c_char; 64],
    inflight_bytes: u64,
    ewma_bandwidth_bps: f64,
}

#[link(name = "transfer_engine")]
extern "C" {
    fn createTransferEngine(m: *const c_char, n: *const c_char, h: *const c_char, p: u64, a: c_int) -> *mut c_void;
    fn destroyTransferEngine(e: *mut c_void);
    fn getLocalIpAndPort(e: *mut c_void, buf: *mut c_char, len: usize) -> c_int;
    fn openSegment(e: *mut c_void, name: *const c_char) -> i32;
    fn registerLocalMemoryBatch(e: *mut c_void, list: *mut BufferEntry, n: usize, location: *const c_char) -> c_int;
    fn unregisterLocalMemoryBatch(e: *mut c_void, addrs: *mut *mut c_void, n: usize) -> c_int;
    fn allocateBatchID(e: *mut c_void, n: usize) -> u64;
    fn submitTransferWithNotify(e: *mut c_void, b: u64, r: *mut TransferRequest, n: usize, msg: NotifyMsg) -> c_int;
    fn getTransferStatus(e: *mut c_void, b: u64, task: usize, st: *mut TransferStatus) -> c_int;
    fn freeBatchID(e: *mut c_void, b: u64) -> c_int;
    fn getNotifsFromEngine(e: *mut c_void, n: *mut c_int) -> *mut NotifyMsg;
    fn freeNotifsMsgBuf(msg: *mut NotifyMsg, n: c_int) -> c_int;
    fn genNotifyInEngine(e: *mut c_void, target: u64, msg: NotifyMsg) -> c_int;
    fn syncSegmentCache(e: *mut c_void) -> c_int;
    fn getNicLoadStats(e: *mut c_void, stats: *mut NicLoadStat, n: *mut usize) -> c_int;
}

fn text(s: &str) -> CString {
    CString::new(s).unwrap()
}

unsafe fn engine() -> (*mut c_void, CString) {
    let (meta, name, host) = (text("P2PHANDSHAKE"), text("127.0.0.1"), text(""));
    let e = createTransferEngine(meta.as_ptr(), name.as_ptr(), host.as_ptr(), 0, 1);
    assert!(!e.is_null());
    let mut buf = [0 as c_char; 128];
    assert_eq!(getLocalIpAndPort(e, buf.as_mut_ptr(), buf.len()), 0);
    (e, CStr::from_ptr(buf.as_ptr()).to_owned())
}

unsafe fn notified(e: *mut c_void, want: &str) {
    let mut n: c_int = 0;
    let got = getNotifsFromEngine(e, &mut n);
    assert!(!got.is_null());
    assert_eq!(n, 1);
    assert_eq!(CStr::from_ptr((*got).msg).to_str().unwrap(), want);
    assert_eq!(freeNotifsMsgBuf(got, n), 0);
}

fn main() {
    unsafe {
        let (target, name) = engine();
        let (user, _) = engine();
        let mut theirs = vec![0u8; 1 << 16];
        let mut mine: Vec<u8> = (0..1u32 << 16).map(|i| (i * 13) as u8).collect();
        let everywhere = text("*");
        for (e, v) in [(target, &mut theirs), (user, &mut mine)] {
            let mut list = [BufferEntry { addr: v.as_mut_ptr() as *mut c_void, length: v.len() }];
            assert_eq!(registerLocalMemoryBatch(e, list.as_mut_ptr(), 1, everywhere.as_ptr()), 0);
        }
        let id = openSegment(user, name.as_ptr());
        assert!(id > 0);
        let mut requests: Vec<TransferRequest> = (0..16)
            .map(|i| TransferRequest {
                opcode: 1,
                source: mine.as_mut_ptr().add(i * 4096) as *mut c_void,
                target_id: id,
                target_offset: theirs.as_ptr() as u64 + i as u64 * 4096,
                length: 4096,
            })
            .collect();
        let batch = allocateBatchID(user, 16);
        let (who, what) = (text("rust"), text("there"));
        let msg = || NotifyMsg { name: who.as_ptr() as *mut c_char, msg: what.as_ptr() as *mut c_char };
        assert_eq!(submitTransferWithNotify(user, batch, requests.as_mut_ptr(), 16, msg()), 0);
        for task in 0..16 {
            let mut st = TransferStatus { status: 0, transferred_bytes: 0 };
            while st.status == 0 {
                assert_eq!(getTransferStatus(user, batch, task, &mut st), 0);
            }
            assert_eq!((st.status, st.transferred_bytes), (4, 4096));
        }
        assert_eq!(freeBatchID(user, batch), 0);
        assert!(theirs == mine);
        // completed means delivered
        notified(target, "there");
        assert_eq!(genNotifyInEngine(user, id as u64, msg()), 0);
        notified(target, "there");
        assert_eq!(syncSegmentCache(user), 0);
        let mut stats = [NicLoadStat { device_name: [0; 64], inflight_bytes: 1, ewma_bandwidth_bps: 0.0 }; 32];
        let mut n = stats.len();
        assert_eq!(getNicLoadStats(user, stats.as_mut_ptr(), &mut n), 0);
        assert_eq!((n, stats[0].inflight_bytes), (1, 0));
        for (e, v) in [(target, &mut theirs), (user, &mut mine)] {
            let mut list = [v.as_mut_ptr() as *mut c_void];
            assert_eq!(unregisterLocalMemoryBatch(e, list.as_mut_ptr(), 1), 0);
        }
        destroyTransferEngine(user);
        destroyTransferEngine(target);
    }
}
