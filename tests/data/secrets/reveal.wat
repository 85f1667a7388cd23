;; A component that tells a secret: to a message whose body is a secret's name it answers with "s" and the secret if it
;; is text, with "b" and the secret if it is bytes, and with "e" if the host has no secret of that name for it.
(component
  (import "wasmcloud:messaging/consumer@0.2.0" (instance $consumer
    (type $record (record (field "subject" string) (field "body" (list u8)) (field "reply-to" (option string))))
    (export "broker-message" (type $message (eq $record)))
    (export "publish" (func (param "msg" $message) (result (result (error string)))))
  ))
  (alias export $consumer "broker-message" (type $message))

  (import "wasmcloud:secrets/store@0.1.0-draft" (instance $store
    (export "secret" (type $secret (sub resource)))
    (type $value (variant (case "string" string) (case "bytes" (list u8))))
    (export "secret-value" (type (eq $value)))
    (type $error' (variant (case "upstream" string) (case "io" string) (case "not-found")))
    (export "secrets-error" (type $error (eq $error')))
    (export "get" (func (param "key" string) (result (result (own $secret) (error $error)))))
  ))
  (alias export $store "secret" (type $secret))
  (alias export $store "secret-value" (type $secret-value))

  (import "wasmcloud:secrets/reveal@0.1.0-draft" (instance $reveal
    (alias outer 1 $secret (type $outer-secret))
    (alias outer 1 $secret-value (type $outer-value))
    (export "secret" (type $secret (eq $outer-secret)))
    (export "secret-value" (type $value (eq $outer-value)))
    (export "reveal" (func (param "s" (borrow $secret)) (result $value)))
  ))

  ;; Memory, and an allocator that never frees: an instance serves one message. The word before each block is free.
  (core module $Libc
    (memory (export "memory") 32)
    (global $next (mut i32) (i32.const 4096))
    (func (export "realloc") (param $old i32) (param $old-size i32) (param $align i32) (param $size i32) (result i32)
      (local $block i32)
      (local.set $block (i32.add (global.get $next) (i32.const 8)))
      (global.set $next (i32.and
        (i32.add (i32.add (local.get $block) (local.get $size)) (i32.const 7)) (i32.const -8)))
      (if (local.get $old)
        (then (memory.copy (local.get $block) (local.get $old) (local.get $old-size))))
      (local.get $block)
    )
  )
  (core instance $libc (instantiate $Libc))

  (core func $publish (canon lower (func $consumer "publish")
    (memory $libc "memory") (realloc (func $libc "realloc"))))
  (core func $get (canon lower (func $store "get")
    (memory $libc "memory") (realloc (func $libc "realloc"))))
  (core func $reveal (canon lower (func $reveal "reveal")
    (memory $libc "memory") (realloc (func $libc "realloc"))))
  (core func $drop (canon resource.drop $secret))

  (core module $Main
    (import "libc" "memory" (memory 32))
    (import "host" "publish" (func $publish (param i32 i32 i32 i32 i32 i32 i32 i32)))
    (import "host" "get" (func $get (param i32 i32 i32)))
    (import "host" "reveal" (func $reveal (param i32 i32)))
    (import "host" "drop" (func $drop (param i32)))
    ;; 0: what `get` returns; 16: what `reveal` returns; 32: what `publish` returns, and we; 64: the answer "e".
    (data (i32.const 64) "e")
    (func (export "handle-message")
      (param $subject i32) (param $subject-size i32) (param $body i32) (param $body-size i32)
      (param $replies i32) (param $reply i32) (param $reply-size i32) (result i32)
      (local $answer i32) (local $size i32)
      (call $get (local.get $body) (local.get $body-size) (i32.const 0))
      (if (i32.load8_u (i32.const 0))
        (then
          (local.set $answer (i32.const 64))
          (local.set $size (i32.const 1)))
        (else
          (call $reveal (i32.load (i32.const 4)) (i32.const 16))
          (call $drop (i32.load (i32.const 4)))
          ;; What is empty has no block, and so no word before it.
          (local.set $answer (select
            (i32.sub (i32.load (i32.const 20)) (i32.const 1)) (i32.const 72) (i32.load (i32.const 24))))
          (local.set $size (i32.add (i32.load (i32.const 24)) (i32.const 1)))
          (i32.store8 (local.get $answer)
            (select (i32.const 98) (i32.const 115) (i32.load8_u (i32.const 16))))))
      (if (local.get $replies)
        (then
          (call $publish (local.get $reply) (local.get $reply-size) (local.get $answer) (local.get $size)
            (i32.const 0) (i32.const 0) (i32.const 0) (i32.const 32)))
        (else (i32.store8 (i32.const 32) (i32.const 0))))
      (i32.const 32)
    )
  )
  (core instance $main (instantiate $Main
    (with "libc" (instance $libc))
    (with "host" (instance
      (export "publish" (func $publish))
      (export "get" (func $get))
      (export "reveal" (func $reveal))
      (export "drop" (func $drop))
    ))
  ))

  (func $handle (param "msg" $message) (result (result (error string)))
    (canon lift (core func $main "handle-message") (memory $libc "memory") (realloc (func $libc "realloc"))))
  (instance $handler (export "handle-message" (func $handle)))
  (export "wasmcloud:messaging/handler@0.2.0" (instance $handler))
)
