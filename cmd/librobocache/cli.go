package main

/*
#include <stdint.h>
*/
import "C"

import (
	"encoding/json"
	"unsafe"

	"github.com/goatnote-inc/robocache/internal/cli"
)

// robocache_main runs the command line on the process's own streams, with handlers of its signals, and gives the exit code. The process ends with it.
//
//export robocache_main
func robocache_main(argc C.int32_t, argv **C.char) C.int32_t {
	args := make([]string, argc)
	for i, a := range unsafe.Slice(argv, argc) {
		args[i] = C.GoString(a)
	}
	return C.int32_t(cli.Main(args, version, cli.NoBench))
}

type verbArgs struct {
	Verb     string                     `json:"verb"`
	Args     []string                   `json:"args"`
	Options  map[string]json.RawMessage `json:"options"`
	Terminal bool                       `json:"terminal"`
}

// robocache_verb runs one verb of the command line inside of the process.
//
//export robocache_verb
func robocache_verb(handle C.int64_t, in *C.char, timeoutMS C.int32_t, ticket *C.int64_t, out **C.char) C.int32_t {
	var a verbArgs
	if err := arguments(in, &a); err != nil {
		return fail(out, err)
	}
	return invoke(timeoutMS, ticket, out, func(ctx context) (result, error) {
		o, err := cli.Verb(ctx, a.Verb, a.Args, a.Options, a.Terminal)
		return result{value: o}, err
	})
}

// robocache_interrupt cancels a call whose end robocache_wait tells: work that leaves a place clean needs the time for it.
//
//export robocache_interrupt
func robocache_interrupt(ticket C.int64_t) {
	if c, ok := calls.get(int64(ticket)); ok {
		c.cancel()
	}
}
