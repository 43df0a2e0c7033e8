// Command load reads one epoch of a dataset in batches and says what was in them: the engine used
// from Go.
//
//	go run ./examples/load PATH
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"

	"github.com/goatnote-inc/robocache"
	_ "github.com/goatnote-inc/robocache/format/all" // formats register themselves
	"github.com/goatnote-inc/robocache/loader"
	_ "github.com/goatnote-inc/robocache/video/ffmpeg" // and so does the decoder
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: load PATH")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := load(ctx, os.Args[1]); err != nil {
		log.Fatal(err) // class, where and hint; errors.Is tells the class
	}
}

func load(ctx context.Context, uri string) error {
	ds, err := robocache.Open(ctx, uri)
	if err != nil {
		return err
	}
	defer ds.Close()
	ld, err := loader.New(ctx, ds, loader.Config{Order: loader.Order{BatchSize: 32, Seed: 1}})
	if err != nil {
		return err
	}
	defer ld.Close()
	for _, f := range ld.Fields() {
		fmt.Println(f.Key, f.DType, f.Shape)
	}
	samples := 0
	for {
		b, err := ld.Next(ctx)
		if errors.Is(err, io.EOF) { // the end of the epoch; the next call begins the next one
			break
		}
		if err != nil {
			return err
		}
		samples += b.Rows
		b.Release() // the buffers go back to the pool: the tensors must not be used after this
	}
	fmt.Printf("%d samples, %.0f a second\n", samples, ld.Stats().SamplesPerSec)
	return nil
}
