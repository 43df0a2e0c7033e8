package main

/*
#include <stdint.h>
*/
import "C"

import (
	"strconv"

	"github.com/goatnote-inc/robocache/kernel/cuda"
	"github.com/goatnote-inc/robocache/selftest"
)

type backendsReply struct {
	CPU  cpuReply  `json:"cpu"`
	CUDA cudaReply `json:"cuda"`
}

type cpuReply struct {
	Instructions string `json:"instructions"`
	Threads      int    `json:"threads"`
}

type cudaReply struct {
	Driver  string   `json:"driver,omitempty"` // the CUDA version that it speaks
	Devices []string `json:"devices"`          // names of those that the kernels load on
	Reason  string   `json:"reason,omitempty"` // why there is none, or not all
}

// robocache_backends says which back ends the kernels have here. It opens every CUDA device.
//
//export robocache_backends
func robocache_backends(handle C.int64_t, in *C.char, timeoutMS C.int32_t, ticket *C.int64_t, out **C.char) C.int32_t {
	return invoke(timeoutMS, ticket, out, func(context) (result, error) {
		r := backendsReply{CPU: cpuReply{Instructions: cores().Instructions(), Threads: cores().Threads()}, CUDA: cudaReply{Devices: []string{}}}
		n, err := cuda.Count()
		for i := 0; i < n && err == nil; i++ {
			var d *cuda.Device
			if d, err = cuda.Open(i); err == nil {
				v := d.Driver()
				r.CUDA.Driver = versionText(v)
				r.CUDA.Devices = append(r.CUDA.Devices, d.Name())
			}
		}
		if err != nil {
			r.CUDA.Reason = err.Error()
		}
		return result{value: r}, nil
	})
}

// robocache_self_test runs the conformance vectors, and decodes the clips that it carries.
//
//export robocache_self_test
func robocache_self_test(handle C.int64_t, in *C.char, timeoutMS C.int32_t, ticket *C.int64_t, out **C.char) C.int32_t {
	return invoke(timeoutMS, ticket, out, func(ctx context) (result, error) {
		return result{value: selftest.Run(ctx)}, nil
	})
}

// versionText writes a driver's 13000 as 13.0.
func versionText(v int) string {
	return strconv.Itoa(v/1000) + "." + strconv.Itoa(v%1000/10)
}
