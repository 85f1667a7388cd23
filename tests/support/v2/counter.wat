;; The text of a counter, for http_text.wat: adds 1 to the key "count" of the bucket "default", and returns the sum in
;; decimal. Hosts of wasmCloud v1 name a bucket by its link. It traps if the store fails.
(import "wasi:keyvalue/store@0.2.0-draft" (instance $store
  (export "bucket" (type $bucket (sub resource)))
  (type $error' (variant (case "no-such-store") (case "access-denied") (case "other" string)))
  (export "error" (type $error (eq $error')))
  (export "open" (func (param "identifier" string) (result (result (own $bucket) (error $error)))))))
(alias export $store "bucket" (type $bucket))
(alias export $store "error" (type $store-error))
(import "wasi:keyvalue/atomics@0.2.0-draft" (instance $atomics
  (alias outer 1 $bucket (type $bucket'))
  (export "bucket" (type $bucket'' (eq $bucket')))
  (alias outer 1 $store-error (type $error'))
  (export "error" (type $error (eq $error')))
  (export "increment" (func
    (param "bucket" (borrow $bucket'')) (param "key" string) (param "delta" u64)
    (result (result u64 (error $error)))))))
(core func $open-bucket (canon lower (func $store "open") (memory $bytes) (realloc $realloc)))
(core func $increment (canon lower (func $atomics "increment") (memory $bytes) (realloc $realloc)))
(core func $drop-bucket (canon resource.drop $bucket))
(core module $text
  (import "memory" "memory" (memory 1))
  (import "store" "open" (func $open (param i32 i32 i32)))
  (import "store" "increment" (func $increment (param i32 i32 i32 i64 i32)))
  (import "store" "drop" (func $drop (param i32)))
  (data (i32.const 4096) "default")
  (data (i32.const 4112) "count")
  ;; Results are written at 2048: 0 for a good one, then the handle at 2052, the sum at 2056.
  (func (export "text") (result i32 i32) (local $bucket i32) (local $sum i64) (local $at i32)
    (call $open (i32.const 4096) (i32.const 7) (i32.const 2048))
    (if (i32.load8_u (i32.const 2048)) (then (unreachable)))
    (local.set $bucket (i32.load (i32.const 2052)))
    (call $increment (local.get $bucket) (i32.const 4112) (i32.const 5) (i64.const 1) (i32.const 2048))
    (if (i32.load8_u (i32.const 2048)) (then (unreachable)))
    (local.set $sum (i64.load (i32.const 2056)))
    (call $drop (local.get $bucket))
    ;; Digits end before 4200.
    (local.set $at (i32.const 4200))
    (loop $next
      (local.set $at (i32.sub (local.get $at) (i32.const 1)))
      (i32.store8 (local.get $at)
        (i32.add (i32.const 48) (i32.wrap_i64 (i64.rem_u (local.get $sum) (i64.const 10)))))
      (local.set $sum (i64.div_u (local.get $sum) (i64.const 10)))
      (br_if $next (i64.ne (local.get $sum) (i64.const 0))))
    (local.get $at)
    (i32.sub (i32.const 4200) (local.get $at))))
(core instance $text (instantiate $text
  (with "memory" (instance $memory))
  (with "store" (instance
    (export "open" (func $open-bucket)) (export "increment" (func $increment)) (export "drop" (func $drop-bucket))))))
