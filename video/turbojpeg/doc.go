// Package turbojpeg decodes JPEG by libjpeg-turbo, where 'make native' built it. Package video uses
// it; elsewhere it decodes in Go.
//
// # Contract
//
//	J1  Pixels are equal to PIL's convert("RGB") to the bit: baseline, progressive and arithmetic coding, any subsampling, grey, CMYK and
//	    YCCK (taken as stored inverted, as PIL takes them). EXIF orientation is not applied.
//	J2  Data whose pixels would be wrong is Malformed: cut, a bad code, a lost restart marker, where PIL gives grey areas. A missing
//	    end marker behind whole data, and bytes between markers, are not.
//	J3  The caller has checked the declared size against its limits: dst is that size, nothing larger is written, and an image of
//	    more than 200 scans is refused.
//	J4  Any number of goroutines may call. Nothing is printed, kept or leaked, whatever the data.
package turbojpeg
