// Command load reads one epoch of a dataset in batches and prints the fields of a batch, the number
// of samples and the speed. It is an example of the engine's use from Go.
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
	_ "github.com/goatnote-inc/robocache/format/all" // registers the formats
	"github.com/goatnote-inc/robocache/loader"
	_ "github.com/goatnote-inc/robocache/video/ffmpeg" // registers the decoder
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: load PATH")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := readEpoch(ctx, os.Args[1]); err != nil {
		log.Fatal(err) // the text has the class, the place and the hint
	}
}

// readEpoch reads one epoch of the dataset at uri.
func readEpoch(ctx context.Context, uri string) error {
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
		if errors.Is(err, io.EOF) { // the end of the epoch; the next call begins the next epoch
			break
		}
		if err != nil {
			return err
		}
		samples += b.Rows
		b.Release() // frees the buffers; the tensors must not be used afterwards
	}
	fmt.Printf("%d samples, %.0f a second\n", samples, ld.Stats().SamplesPerSec)
	return nil
}
