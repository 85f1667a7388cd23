module trellis.dev/controller

go 1.24
