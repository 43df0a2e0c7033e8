package main

/*
#include <stdint.h>
*/
import "C"

import (
	"github.com/goatnote-inc/robocache"
	"github.com/goatnote-inc/robocache/kernel"
	"github.com/goatnote-inc/robocache/loader"
)

type finishReply struct {
	Op      int64           `json:"op"` // 0: nothing is left to do
	Buffers []int           `json:"buffers"`
	Places  []loader.Place  `json:"places"` // of the op's tensors, in the order of their addresses
	Images  int64           `json:"images"` // another op, of augmented cameras; 0: none
	Drawn   []loader.Place  `json:"drawn"`  // of its tensors
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
		r := finishReply{Buffers: f.Buffers, Places: f.Places, Drawn: f.Drawn, Outputs: f.Outputs}
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
		undo := func() {
			for _, h := range []int64{r.Op, r.Images} {
				if h != 0 {
					handles.remove(h)
				}
			}
		}
		// Each build has tensors of its own.
		make := func(to *int64, op func(f *loader.Finish) kernel.Op) error {
			made, err := prepare(func() (*operation, error) {
				f, err := l.l.Finish(a.Rows)
				if err != nil {
					return nil, err
				}
				o := op(f)
				return &operation{op: o, tensors: o.Tensors()}, nil
			}, a.Backend, a.Device)
			*to = made.Op
			return err
		}
		if f.Op != nil {
			err = make(&r.Op, func(f *loader.Finish) kernel.Op { return f.Op })
		}
		if err == nil && f.Images != nil {
			err = make(&r.Images, func(f *loader.Finish) kernel.Op { return f.Images })
		}
		if err != nil {
			undo()
			return result{}, err
		}
		return result{value: r, undo: undo}, nil
	})
}
