//! An HTTP server as a component of the world `wasi:cli/command`: it answers each request with 200, one after another.

use std::io::{Read, Result, Write};
use std::net::{TcpListener, TcpStream};

const ANSWER: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nok\n";

fn main() -> Result<()> {
    let listener = TcpListener::bind("0.0.0.0:8080")?;
    for stream in listener.incoming() {
        // A client that disconnects, as a probe of a port does, concerns only itself.
        let _ = stream.and_then(answer);
    }
    Ok(())
}

/// Answers one request, whatever it is, once its headers are complete.
fn answer(mut stream: TcpStream) -> Result<()> {
    let (mut request, mut part) = (Vec::new(), [0; 1024]);
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        match stream.read(&mut part)? {
            0 => return Ok(()),
            count => request.extend_from_slice(&part[..count]),
        }
    }
    stream.write_all(ANSWER)
}
