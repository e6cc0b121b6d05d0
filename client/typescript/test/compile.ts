// Compiles orders.ts, and the README's backend with the package, with the usual settings of a project:
// node compile.js PACKAGE, a folder in which the package is installed.
import { join } from 'node:path';
import ts from 'typescript';

const [, , installed = ''] = process.argv;
const libs = ['es2020', 'es2022', 'es2020,dom', 'es2022,dom', 'es2022,dom,dom.iterable', 'esnext,dom,dom.asynciterable'];
const modules: [ts.ModuleKind, ts.ModuleResolutionKind][] = [
  [ts.ModuleKind.CommonJS, ts.ModuleResolutionKind.Node10],
  [ts.ModuleKind.Node16, ts.ModuleResolutionKind.Node16],
  [ts.ModuleKind.NodeNext, ts.ModuleResolutionKind.NodeNext],
  [ts.ModuleKind.ESNext, ts.ModuleResolutionKind.Bundler],
];
const strictest: ts.CompilerOptions = {
  strict: true, exactOptionalPropertyTypes: true, noUncheckedIndexedAccess: true, noPropertyAccessFromIndexSignature: true,
  noImplicitReturns: true, noImplicitOverride: true, noFallthroughCasesInSwitch: true, noUnusedLocals: true, noUnusedParameters: true,
  isolatedModules: true, erasableSyntaxOnly: true, skipLibCheck: true, allowJs: true, checkJs: true, noEmit: true,
};

const parsed = new Map<string, ts.SourceFile | undefined>(); // of all programs
let errors = 0;
let programs = 0;
for (const file of ['orders.ts', join(installed, 'backend.mjs'), join(installed, 'backend.cts')]) {
  for (const lib of libs) {
    for (const [module, moduleResolution] of modules) {
      if (file.endsWith('.mjs') && module === ts.ModuleKind.CommonJS) continue; // no top-level import in CommonJS
      const target = lib.startsWith('es2020') ? ts.ScriptTarget.ES2020 : ts.ScriptTarget.ES2022;
      const options = { ...strictest, target, module, moduleResolution, lib: lib.split(',').map((name) => `lib.${name}.d.ts`), types: ['node'] };
      const host = ts.createCompilerHost(options);
      const { getSourceFile } = host;
      host.getSourceFile = (name, language, ...rest) => {
        const id = `${name} ${JSON.stringify(language)}`;
        if (!parsed.has(id)) parsed.set(id, getSourceFile(name, language, ...rest));
        return parsed.get(id);
      };
      const program = ts.createProgram([file], options, host);
      const found = ts.getPreEmitDiagnostics(program);
      if (found.length > 0) console.error(`${file}, lib ${lib}, module ${ts.ModuleKind[module]}:\n${ts.formatDiagnostics(found, host)}`);
      errors += found.length;
      programs++;
    }
  }
}
console.log(`${programs} programs with the TypeScript client compile with ${errors} errors`);
process.exitCode = errors ? 1 : 0;
