package main

/*
#include <stdint.h>
*/
import "C"

import (
	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/loader"
)

type finishReply struct {
	Op      int64           `json:"op"` // 0: nothing is left to do
	Buffers []int           `json:"buffers"`
	Places  []loader.Place  `json:"places"` // of the op's tensors, in the order of their addresses
	Fields  []finishField   `json:"fields"` // those that are not texts
	Outputs []loader.Output `json:"outputs"`
}

type finishField struct {
	loader.Place
	Key   string          `json:"key"`
	DType robocache.DType `json:"dtype"`
	Shape []int           `json:"shape"` // with the batch axis
	Bytes int             `json:"bytes"`
}

// robocache_loader_finish prepares what is left to do of raw batches of so many rows, as an op whose handle the caller closes.
//
//export robocache_loader_finish
func robocache_loader_finish(handle C.int64_t, in *C.char, timeoutMS C.int32_t, ticket *C.int64_t, out **C.char) C.int32_t {
	var a struct {
		Rows    int    `json:"rows"`
		Backend string `json:"backend"`
		Device  int    `json:"device"`
	}
	if err := arguments(in, &a); err != nil {
		return fail(out, err)
	}
	if a.Rows < 0 {
		return fail(out, misuse("finish", "rows below 0"))
	}
	return with(handle, timeoutMS, ticket, out, func(_ context, l *loading) (result, error) {
		f, err := l.l.Finish(a.Rows)
		if err != nil {
			return result{}, err
		}
		r := finishReply{Buffers: f.Buffers, Places: f.Places, Outputs: f.Outputs}
		at := f.Fields
		for _, x := range l.l.Fields() {
			if x.Text() {
				continue
			}
			n := a.Rows * x.DType.Size()
			for _, d := range x.Shape {
				n *= d
			}
			r.Fields = append(r.Fields, finishField{at[0], x.Key, x.DType, append([]int{a.Rows}, x.Shape...), n})
			at = at[1:]
		}
		if f.Op == nil {
			return result{value: r}, nil
		}
		op, err := prepare(func() (*operation, error) {
			f, err := l.l.Finish(a.Rows)
			if err != nil {
				return nil, err
			}
			return &operation{op: f.Op, tensors: f.Op.Tensors()}, nil
		}, a.Backend, a.Device)
		if err != nil {
			return result{}, err
		}
		r.Op = op.Op
		return result{value: r, undo: func() { handles.remove(r.Op) }}, nil
	})
}
